package oracle_test

import (
	"slices"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// Rules that a scenario needs again and again.
const (
	allowAll = `ingress: [{action: Allow, from: ` + shop.AllPods + `}]`
)

// adminOrderRows are rows 57 to 67, 75, 76, 79 and 80: the order in which tiers, policies and rules
// are evaluated.
var adminOrderRows = []scenario{
	{row: 57, name: "what the admin tier denies nobody allows", policies: shop.AllowWeb,
		tiers: shop.Admin("a", 5, shop.ForDB+shop.DenyWeb) + shop.Baseline(shop.ForDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 57, name: "what no tier decides is allowed", tiers: shop.Admin("a", 5, shop.ForDB+shop.DenyWeb) + shop.Baseline(shop.ForDB+shop.DenyWeb), want: []string{
		"shop/api > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp allow", "shop/db > shop/web 1/tcp allow"}},
	{row: 57, name: "the lower priority is asked first, whatever the kind",
		tiers: shop.Admin("b", 20, shop.ForDB+allowAll) + shop.ClusterPolicy("Admin", "a", 19, shop.ForDB+shop.DenyWeb), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 57, name: "the first rule of a policy that matches decides",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: `+shop.WebPods+`, ports: [{portNumber: {protocol: TCP, port: 1}}]}, {action: Deny, from: `+shop.WebPods+`}, {action: Allow, from: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny", "shop/web > shop/db 1/udp deny", "shop/api > shop/db 2/tcp allow"}},
	{row: 57, name: "a later policy decides what earlier ones do not match",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: `+shop.APIPods+`}]`) + shop.Admin("b", 2, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`),
		want:  []string{"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 58, name: "of equal priorities the first name is asked first",
		tiers: shop.Admin("b", 7, shop.ForDB+allowAll) + shop.Admin("a", 7, shop.ForDB+shop.DenyWeb) + shop.Admin("c", 7, shop.ForDB+allowAll),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 58, name: "the name counts before the kind",
		tiers: shop.Admin("b", 7, shop.ForDB+allowAll) + shop.ClusterPolicy("Admin", "a", 7, shop.ForDB+shop.DenyWeb), want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 58, name: "of equal names an AdminNetworkPolicy is asked before a ClusterNetworkPolicy",
		tiers: shop.ClusterPolicy("Admin", "a", 7, shop.ForDB+shop.DenyWeb) + shop.Admin("a", 7, shop.ForDB+allowAll), want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 58, name: "in the baseline tier as well",
		tiers: shop.ClusterPolicy("Baseline", "b", 7, shop.ForDB+`ingress: [{action: Accept, from: `+shop.AllPods+`}]`) + shop.ClusterPolicy("Baseline", "a", 7, shop.ForDB+shop.DenyWeb),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 59, name: "Allow passes by NetworkPolicy", policies: shop.DenyAll,
		tiers: shop.Admin("a", 5, shop.ForDB+allowAll) + shop.Admin("b", 5, `subject: {namespaces: {}}, egress: [{action: Allow, to: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 59, name: "Accept passes by NetworkPolicy", policies: shop.DenyDB,
		tiers: shop.ClusterPolicy("Admin", "a", 5, shop.ForDB+`ingress: [{action: Accept, from: `+shop.WebPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 59, name: "the other direction is asked all the same", policies: shop.DenyAll,
		tiers: shop.Admin("a", 5, shop.ForDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 59, name: "each side has its own rules",
		tiers: shop.Admin("a", 5, shop.ForAll+`ingress: [{action: Allow, from: `+shop.AllPods+`}], egress: [{action: Deny, to: `+shop.APIPods+`}]`),
		want:  []string{"shop/web > shop/api 1/tcp deny", "shop/api > shop/web 1/tcp allow", "203.0.113.9 > shop/api 1/tcp allow"}},
	{row: 60, name: "Deny is final", policies: `spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`,
		tiers: shop.Admin("a", 5, shop.ForDB+shop.DenyWeb) + shop.Admin("b", 6, shop.ForDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "Pass goes to NetworkPolicy, by all policies of the tier", policies: shop.AllowWeb,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Pass, from: `+shop.WebPods+`}]`) + shop.Admin("b", 2, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`) + shop.Baseline(shop.ForDB+shop.DenyWeb),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 61, name: "what is passed on to NetworkPolicy may be denied there", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Pass, from: `+shop.WebPods+`}, {action: Allow, from: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "without isolation what is passed on goes to the baseline tier",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Pass, from: `+shop.AllPods+`}, {action: Deny, from: `+shop.AllPods+`}]`) + shop.Baseline(shop.ForDB+shop.DenyWeb),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "only what the rule matches is passed on",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Pass, from: `+shop.WebPods+`, ports: [{portNumber: {port: 1}}]}, {action: Deny, from: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 62, name: "Pass in the baseline tier ends it: allowed",
		tiers: shop.ClusterPolicy("Baseline", "a", 1, shop.ForDB+`ingress: [{action: Pass, from: `+shop.WebPods+`}]`) +
			shop.ClusterPolicy("Baseline", "b", 2, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`) + shop.Baseline(shop.ForDB+shop.DenyWeb),
		want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 62, name: "a BaselineAdminNetworkPolicy has no Pass: it denies what it matches",
		tiers: shop.Baseline(shop.ForDB + `ingress: [{action: Pass, from: ` + shop.WebPods + `}, {action: Allow, from: ` + shop.AllPods + `}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 63, name: "what matches no rule is not denied by the policy", policies: shop.DenyAll,
		tiers: shop.Admin("a", 5, shop.ForAll+`ingress: [{action: Allow, from: `+shop.WebPods+`}], egress: [{action: Allow, to: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 63, name: "a policy without rules of a direction does not touch it",
		tiers: shop.Admin("a", 5, shop.ForDB+shop.DenyWeb) + shop.Admin("b", 6, shop.ForAll+`egress: []`), want: []string{
			"shop/db > shop/web 1/tcp allow", "shop/web > shop/db 1/tcp deny", "shop/web > shop/api 1/tcp allow"}},
	{row: 64, name: "a NetworkPolicy that isolates decides, and the baseline tier is not asked", policies: shop.AllowWeb,
		tiers: shop.Baseline(shop.ForDB + `ingress: [{action: Deny, from: ` + shop.WebPods + `}, {action: Allow, from: ` + shop.AllPods + `}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 65, name: "priorities are compared within a tier",
		tiers: shop.ClusterPolicy("Baseline", "a", 1, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Admin", "b", 1, shop.ForDB+`ingress: [{action: Accept, from: `+shop.WebPods+`, protocols: [{tcp: {destinationPort: {number: 1}}}]}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny"}},
	{row: 65, name: "the baseline tier is asked by priority, the BaselineAdminNetworkPolicy last",
		tiers: shop.Baseline(shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Baseline", "z", 1000, shop.ForDB+`ingress: [{action: Accept, from: `+shop.AllPods+`}]`) +
			shop.ClusterPolicy("Baseline", "y", 999, shop.ForDB+`ingress: [{action: Deny, from: `+shop.APIPods+`}]`),
		want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 66, name: "a NetworkPolicy of the other direction does not switch off the baseline tier",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`,
		tiers:    shop.Baseline(shop.ForDB + shop.DenyWeb + `, egress: [{action: Deny, to: ` + shop.WebPods + `}]`),
		want:     []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow", "shop/db > shop/web 1/tcp allow"}},
	{row: 67, name: "a BaselineAdminNetworkPolicy of another name has no effect",
		tiers: shop.Baseline(shop.ForDB + shop.DenyWeb), edit: func(s *oracle.State) {
			s.BaselinePolicies[0].Name = "other"
		}, want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 67, name: "there are many ClusterNetworkPolicies of the baseline tier",
		tiers: shop.ClusterPolicy("Baseline", "a", 1, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Baseline", "b", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.APIPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 75, name: "every priority from 0 to 1000 counts",
		tiers: shop.Admin("a", 1000, shop.ForDB+allowAll) + shop.Admin("b", 0, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Admin", "c", 999, shop.ForDB+`ingress: [{action: Deny, from: `+shop.APIPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 75, name: "a policy with any other priority has no effect",
		tiers: shop.Admin("a", 1001, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Admin", "b", -1, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Baseline", "c", 1001, shop.ForDB+shop.DenyWeb),
		want:  []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 75, name: "a policy of an unknown tier has no effect", tiers: shop.ClusterPolicy("Network", "a", 1, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy(`""`, "b", 1, shop.ForDB+shop.DenyWeb),
		want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 75, name: "lists can be longer than an API server lets them be",
		tiers: shop.Admin("a", 1, shop.ForDB+allowAll), edit: func(s *oracle.State) {
			p := s.AdminPolicies[0]
			never := p.Spec.Ingress[0].DeepCopy()
			never.From[0].Namespaces.MatchLabels = map[string]string{"none": ""}
			deny := p.Spec.Ingress[0].DeepCopy()
			deny.Action = "Deny"
			p.Spec.Ingress = append(slices.Repeat([]v1alpha1.AdminNetworkPolicyIngressRule{*never}, 200), *deny)
		}, want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 76, name: "a policy may stand before the namespaces and pods that it selects",
		tiers: shop.Admin("a", 1, `subject: {namespaces: {matchLabels: {team: new}}}, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: new}}}]}]`),
		edit: func(s *oracle.State) {
			s.Namespaces = append(s.Namespaces, shop.Namespace("ghost", map[string]string{"team": "new"}))
			shop.NamespaceOf(s, "ops").Labels["team"] = "new"
		}, want: []string{"ghost/web > ops/cli 1/tcp deny", "ops/cli > ghost/web 1/tcp deny", "shop/web > ops/cli 1/tcp allow"}},
	{row: 79, name: "of several rules of a policy that match only the first counts",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: b}}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}]}, {action: Allow, from: `+shop.AllPods+`}, {action: Deny, from: `+shop.AllPods+`}]`),
		want:  []string{"infra/mon > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "shop/web > shop/db 1/tcp allow"}},
	{row: 80, name: "without its NetworkPolicies the baseline tier is asked about a pod", policies: shop.AllowWeb,
		tiers: shop.Baseline(shop.ForDB + shop.DenyWeb), edit: func(s *oracle.State) { s.Policies = nil },
		want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
}
