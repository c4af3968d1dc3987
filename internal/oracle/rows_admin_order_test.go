package oracle_test

import (
	"slices"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/sluice-net/sluice/internal/oracle"
)

// Rules that a scenario needs again and again.
const (
	denyWeb  = `ingress: [{action: Deny, from: ` + webPods + `}]`
	allowAll = `ingress: [{action: Allow, from: ` + allPods + `}]`
)

// adminOrderRows are rows 57 to 67, 75, 76, 79 and 80: in which order the tiers, the
// policies and the rules are asked.
var adminOrderRows = []scenario{
	{row: 57, name: "what the admin tier denies nobody allows", policies: allowWeb,
		tiers: anp("a", 5, forDB+denyWeb) + banp(forDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 57, name: "what no tier decides is allowed", tiers: anp("a", 5, forDB+denyWeb) + banp(forDB+denyWeb), want: []string{
		"shop/api > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp allow", "shop/db > shop/web 1/tcp allow"}},
	{row: 57, name: "the lower priority is asked first, whatever the kind",
		tiers: anp("b", 20, forDB+allowAll) + cnp("Admin", "a", 19, forDB+denyWeb), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 57, name: "the first rule of a policy that matches decides",
		tiers: anp("a", 1, forDB+`ingress: [{action: Allow, from: `+webPods+`, ports: [{portNumber: {protocol: TCP, port: 1}}]}, {action: Deny, from: `+webPods+`}, {action: Allow, from: `+allPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny", "shop/web > shop/db 1/udp deny", "shop/api > shop/db 2/tcp allow"}},
	{row: 57, name: "a later policy decides what earlier ones do not match",
		tiers: anp("a", 1, forDB+`ingress: [{action: Allow, from: `+apiPods+`}]`) + anp("b", 2, forDB+`ingress: [{action: Deny, from: `+allPods+`}]`),
		want:  []string{"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 58, name: "of equal priorities the first name is asked first",
		tiers: anp("b", 7, forDB+allowAll) + anp("a", 7, forDB+denyWeb) + anp("c", 7, forDB+allowAll),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 58, name: "the name counts before the kind",
		tiers: anp("b", 7, forDB+allowAll) + cnp("Admin", "a", 7, forDB+denyWeb), want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 58, name: "of equal names an AdminNetworkPolicy is asked before a ClusterNetworkPolicy",
		tiers: cnp("Admin", "a", 7, forDB+denyWeb) + anp("a", 7, forDB+allowAll), want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 58, name: "in the baseline tier as well",
		tiers: cnp("Baseline", "b", 7, forDB+`ingress: [{action: Accept, from: `+allPods+`}]`) + cnp("Baseline", "a", 7, forDB+denyWeb),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 59, name: "Allow passes by NetworkPolicy", policies: denyAll,
		tiers: anp("a", 5, forDB+allowAll) + anp("b", 5, `subject: {namespaces: {}}, egress: [{action: Allow, to: `+allPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 59, name: "Accept passes by NetworkPolicy", policies: denyDB,
		tiers: cnp("Admin", "a", 5, forDB+`ingress: [{action: Accept, from: `+webPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 59, name: "the other direction is asked all the same", policies: denyAll,
		tiers: anp("a", 5, forDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 59, name: "each side has its own rules",
		tiers: anp("a", 5, forAll+`ingress: [{action: Allow, from: `+allPods+`}], egress: [{action: Deny, to: `+apiPods+`}]`),
		want:  []string{"shop/web > shop/api 1/tcp deny", "shop/api > shop/web 1/tcp allow", "203.0.113.9 > shop/api 1/tcp allow"}},
	{row: 60, name: "Deny is final", policies: `spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`,
		tiers: anp("a", 5, forDB+denyWeb) + anp("b", 6, forDB+allowAll), want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "Pass goes to NetworkPolicy, by all policies of the tier", policies: allowWeb,
		tiers: anp("a", 1, forDB+`ingress: [{action: Pass, from: `+webPods+`}]`) + anp("b", 2, forDB+`ingress: [{action: Deny, from: `+allPods+`}]`) + banp(forDB+denyWeb),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 61, name: "what is passed on to NetworkPolicy may be denied there", policies: denyDB,
		tiers: anp("a", 1, forDB+`ingress: [{action: Pass, from: `+webPods+`}, {action: Allow, from: `+allPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "without isolation what is passed on goes to the baseline tier",
		tiers: anp("a", 1, forDB+`ingress: [{action: Pass, from: `+allPods+`}, {action: Deny, from: `+allPods+`}]`) + banp(forDB+denyWeb),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 61, name: "only what the rule matches is passed on",
		tiers: anp("a", 1, forDB+`ingress: [{action: Pass, from: `+webPods+`, ports: [{portNumber: {port: 1}}]}, {action: Deny, from: `+allPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 62, name: "Pass in the baseline tier ends it: allowed",
		tiers: cnp("Baseline", "a", 1, forDB+`ingress: [{action: Pass, from: `+webPods+`}]`) +
			cnp("Baseline", "b", 2, forDB+`ingress: [{action: Deny, from: `+allPods+`}]`) + banp(forDB+denyWeb),
		want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 62, name: "a BaselineAdminNetworkPolicy has no Pass: it denies what it matches",
		tiers: banp(forDB + `ingress: [{action: Pass, from: ` + webPods + `}, {action: Allow, from: ` + allPods + `}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 63, name: "what matches no rule is not denied by the policy", policies: denyAll,
		tiers: anp("a", 5, forAll+`ingress: [{action: Allow, from: `+webPods+`}], egress: [{action: Allow, to: `+allPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 63, name: "a policy without rules of a direction does not touch it",
		tiers: anp("a", 5, forDB+denyWeb) + anp("b", 6, forAll+`egress: []`), want: []string{
			"shop/db > shop/web 1/tcp allow", "shop/web > shop/db 1/tcp deny", "shop/web > shop/api 1/tcp allow"}},
	{row: 64, name: "a NetworkPolicy that isolates decides, and the baseline tier is not asked", policies: allowWeb,
		tiers: banp(forDB + `ingress: [{action: Deny, from: ` + webPods + `}, {action: Allow, from: ` + allPods + `}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 65, name: "priorities are compared within a tier",
		tiers: cnp("Baseline", "a", 1, forDB+denyWeb) + cnp("Admin", "b", 1, forDB+`ingress: [{action: Accept, from: `+webPods+`, protocols: [{tcp: {destinationPort: {number: 1}}}]}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp deny"}},
	{row: 65, name: "the baseline tier is asked by priority, the BaselineAdminNetworkPolicy last",
		tiers: banp(forDB+denyWeb) + cnp("Baseline", "z", 1000, forDB+`ingress: [{action: Accept, from: `+allPods+`}]`) +
			cnp("Baseline", "y", 999, forDB+`ingress: [{action: Deny, from: `+apiPods+`}]`),
		want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 66, name: "a NetworkPolicy of the other direction does not switch off the baseline tier",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`,
		tiers:    banp(forDB + denyWeb + `, egress: [{action: Deny, to: ` + webPods + `}]`),
		want:     []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow", "shop/db > shop/web 1/tcp allow"}},
	{row: 67, name: "a BaselineAdminNetworkPolicy of another name has no effect",
		tiers: banp(forDB + denyWeb), edit: func(s *oracle.State) {
			s.BaselinePolicies[0].Name = "other"
		}, want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 67, name: "there are many ClusterNetworkPolicies of the baseline tier",
		tiers: cnp("Baseline", "a", 1, forDB+denyWeb) + cnp("Baseline", "b", 1, forDB+`ingress: [{action: Deny, from: `+apiPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 75, name: "every priority from 0 to 1000 counts",
		tiers: anp("a", 1000, forDB+allowAll) + anp("b", 0, forDB+denyWeb) + cnp("Admin", "c", 999, forDB+`ingress: [{action: Deny, from: `+apiPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 75, name: "a policy with any other priority has no effect",
		tiers: anp("a", 1001, forDB+denyWeb) + cnp("Admin", "b", -1, forDB+denyWeb) + cnp("Baseline", "c", 1001, forDB+denyWeb),
		want:  []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 75, name: "a policy of an unknown tier has no effect", tiers: cnp("Network", "a", 1, forDB+denyWeb) + cnp(`""`, "b", 1, forDB+denyWeb),
		want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 75, name: "lists can be longer than an API server lets them be",
		tiers: anp("a", 1, forDB+allowAll), edit: func(s *oracle.State) {
			p := s.AdminPolicies[0]
			never := p.Spec.Ingress[0].DeepCopy()
			never.From[0].Namespaces.MatchLabels = map[string]string{"none": ""}
			deny := p.Spec.Ingress[0].DeepCopy()
			deny.Action = "Deny"
			p.Spec.Ingress = append(slices.Repeat([]v1alpha1.AdminNetworkPolicyIngressRule{*never}, 200), *deny)
		}, want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 76, name: "a policy may stand before the namespaces and pods that it selects",
		tiers: anp("a", 1, `subject: {namespaces: {matchLabels: {team: new}}}, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: new}}}]}]`),
		edit: func(s *oracle.State) {
			s.Namespaces = append(s.Namespaces, namespace("ghost", map[string]string{"team": "new"}))
			namespaceOf(s, "ops").Labels["team"] = "new"
		}, want: []string{"ghost/web > ops/cli 1/tcp deny", "ops/cli > ghost/web 1/tcp deny", "shop/web > ops/cli 1/tcp allow"}},
	{row: 79, name: "of several rules of a policy that match only the first counts",
		tiers: anp("a", 1, forDB+`ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: b}}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}]}, {action: Allow, from: `+allPods+`}, {action: Deny, from: `+allPods+`}]`),
		want:  []string{"infra/mon > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "shop/web > shop/db 1/tcp allow"}},
	{row: 80, name: "without its NetworkPolicies the baseline tier is asked about a pod", policies: allowWeb,
		tiers: banp(forDB + denyWeb), edit: func(s *oracle.State) { s.Policies = nil },
		want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
}
