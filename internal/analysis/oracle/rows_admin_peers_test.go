package oracle_test

import (
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// toNodes is an egress rule that denies nodes which a selector selects.
func toNodes(selector string) string {
	return shop.ForShop + `egress: [{action: Deny, to: [{nodes: ` + selector + `}]}]`
}

// denyTo is a policy for the database that denies some peers on egress.
func denyTo(peers string) string { return shop.ForDB + `egress: [{action: Deny, to: [` + peers + `]}]` }

// labelNodes gives the nodes labels.
func labelNodes(s *oracle.State) {
	s.Nodes[0].Labels = map[string]string{"role": "front"}
	s.Nodes[1].Labels = map[string]string{"role": "back"}
}

// adminPeerRows are rows 68 to 70, 73, 74, 77 and 78: who is a peer.
var adminPeerRows = []scenario{
	{row: 68, name: "on ingress only pods are peers",
		tiers: shop.Admin("a", 1, shop.ForAll+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`), edit: addHostPod, want: []string{
			"shop/web > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/tcp allow", "192.168.0.1 > shop/db 1/tcp allow",
			"192.168.0.2 > shop/db 1/tcp allow", "infra/agent > shop/db 1/tcp allow"}},
	{row: 68, name: "what is no pod goes on to NetworkPolicy", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+allowAll), want: []string{"203.0.113.9 > shop/db 1/tcp deny", "shop/web > shop/db 1/tcp allow"}},
	{row: 68, name: "a namespace that is not known is selected by nothing",
		tiers: shop.Admin("a", 1, shop.ForAll+`ingress: [{action: Deny, from: `+shop.AllPods+`}], egress: [{action: Deny, to: `+shop.APIPods+`}]`),
		want:  []string{"ghost/web > shop/db 1/tcp allow", "ghost/web > shop/api 1/tcp allow", "shop/web > shop/api 1/tcp deny"}},
	{row: 69, name: "networks match addresses outside of the cluster",
		tiers: shop.Admin("a", 1, denyTo(`{networks: [203.0.113.0/24, 198.51.100.7/32]}`)), want: []string{
			"shop/db > 203.0.113.9 1/tcp deny", "shop/db > 198.51.100.7 1/udp deny", "shop/db > 198.51.100.8 1/tcp allow", "shop/web > 203.0.113.9 1/tcp allow"}},
	{row: 69, name: "networks match pods and nodes as well",
		tiers: shop.Admin("a", 1, denyTo(`{networks: [10.0.1.0/24, 192.168.0.0/16]}`)), edit: addHostPod, want: []string{
			"shop/db > shop/web 1/tcp deny", "shop/db > infra/mon 1/tcp allow", "shop/db > 192.168.0.2 1/tcp deny", "shop/db > infra/agent 1/tcp deny"}},
	{row: 69, name: "a Pass before keeps pods out of them",
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Pass, to: `+shop.AllPods+`}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]`), want: []string{
			"shop/db > shop/web 1/tcp allow", "shop/db > 203.0.113.9 1/tcp deny", "shop/db > 192.168.0.2 1/tcp deny"}},
	{row: 69, name: "networks match no address of the other family",
		tiers: shop.Admin("a", 1, denyTo(`{networks: ["::/0"]}`)), want: []string{
			"10.0.1.3 > 10.0.1.1 1/tcp allow", "fd00::1:3 > fd00::1:1 1/tcp deny", "fd00::1:3 > 2001:db8::1 icmpv6 deny"}},
	{row: 69, name: "host bits of networks do not count",
		tiers: shop.Admin("a", 1, denyTo(`{networks: [203.0.113.77/24]}`)) + shop.ClusterPolicy("Admin", "b", 2, denyTo(`{networks: [198.51.100.9/29]}`)), want: []string{
			"shop/db > 203.0.113.9 1/tcp deny", "shop/db > 198.51.100.8 1/tcp deny", "shop/db > 198.51.100.7 1/tcp allow"}},
	{row: 69, name: "networks of v1alpha2 and of the baseline are the same",
		tiers: shop.ClusterPolicy("Admin", "a", 1, denyTo(`{networks: [203.0.113.0/24]}`)) + shop.Baseline(denyTo(`{networks: [198.51.100.0/24]}`)), want: []string{
			"shop/db > 203.0.113.9 1/tcp deny", "shop/db > 198.51.100.7 1/tcp deny", "shop/db > 192.0.2.1 1/tcp allow"}},
	{row: 70, name: "nodes are all addresses of the nodes whose labels match",
		tiers: shop.Admin("a", 1, toNodes(`{matchLabels: {role: front}}`)), edit: labelNodes, want: []string{
			"shop/api > 192.168.0.1 1/tcp deny", "shop/api > 203.0.113.201 1/tcp deny", "shop/api > 192.168.0.2 1/tcp allow"}},
	{row: 70, name: "the empty selector means every node, and nothing else",
		tiers: shop.ClusterPolicy("Admin", "a", 1, toNodes(`{}`)), want: []string{
			"shop/api > 192.168.0.1 1/tcp deny", "shop/db > 192.168.0.2 1/tcp deny", "shop/api > shop/db 1/tcp allow", "shop/api > 203.0.113.9 1/tcp allow"}},
	{row: 70, name: "pods in the host network of a node are at its addresses, others are not",
		tiers: shop.Admin("a", 1, toNodes(`{matchExpressions: [{key: role, operator: NotIn, values: [front]}]}`)),
		edit: func(s *oracle.State) {
			labelNodes(s)
			addHostPod(s)
		}, want: []string{"shop/db > infra/agent 1/tcp deny", "shop/db > shop/api 1/tcp allow", "shop/db > 192.168.0.1 1/tcp allow"}},
	{row: 70, name: "nodes of the baseline", tiers: shop.Baseline(toNodes(`{}`)), want: []string{
		"shop/db > 192.168.0.2 1/tcp deny", "infra/mon > 192.168.0.1 1/tcp allow"}},
	{row: 73, name: "a rule that allows domain names matches nothing by them",
		policies: shop.DBEgress(``), tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Allow, to: [{domainNames: [example.org]}, {networks: [198.51.100.0/24]}]}]`),
		want: []string{"shop/db > 203.0.113.9 443/tcp deny", "shop/db > 198.51.100.7 443/tcp allow"}},
	{row: 74, name: "a rule that denies domain names denies everything",
		tiers: shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`egress: [{action: Deny, to: [{domainNames: ["*.example.org"]}], protocols: [{tcp: {destinationPort: {number: 1}}}]}]`),
		want:  []string{"shop/db > 203.0.113.9 443/tcp deny", "shop/db > shop/web icmp deny", "shop/db > 192.168.0.1 1/tcp deny"}},
	{row: 74, name: "a rule that passes domain names on denies everything",
		tiers: shop.Admin("a", 1, denyTo(`{domainNames: [example.org]}`)), edit: func(s *oracle.State) {
			s.AdminPolicies[0].Spec.Egress[0].Action = "Pass"
		}, want: []string{"shop/db > 203.0.113.9 443/tcp deny", "shop/web > shop/db 1/tcp allow"}},
	{row: 77, name: "by an unknown peer a rule that allows matches nothing, its others count", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: [{}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]}]`),
		want:  []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 77, name: "with an unknown peer a rule that denies denies everything, also what is no pod",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: [{}], ports: [{portNumber: {port: 1}}]}, {action: Allow, from: `+shop.AllPods+`}]`),
		want:  []string{"shop/web > shop/db 2/udp deny", "203.0.113.9 > shop/db icmp deny", "192.168.0.1 > shop/db 1/tcp allow", "192.168.0.2 > shop/db 1/tcp deny", "shop/web > shop/api 1/tcp allow"}},
	{row: 77, name: "with an unknown peer a rule that passes denies everything",
		tiers: shop.ClusterPolicy("Baseline", "a", 1, shop.ForDB+`ingress: [{action: Pass, from: [{}]}]`), want: []string{"shop/api > shop/db 1/tcp deny", "shop/db > shop/api 1/tcp allow"}},
	{row: 77, name: "a peer with two fields is unknown",
		tiers: shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`egress: [{action: Deny, to: [{namespaces: {}, nodes: {}}]}]`), want: []string{"shop/db > 203.0.113.9 1/tcp deny"}},
	{row: 77, name: "an empty list of networks is no field", policies: shop.DBEgress(``),
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Allow, to: [{networks: [], namespaces: {}}]}]`), want: []string{"shop/db > shop/web 1/tcp allow", "shop/db > 203.0.113.9 1/tcp deny"}},
	{row: 77, name: "an invalid selector is unknown", policies: shop.DenyDB,
		tiers: shop.Admin("a", 2, shop.ForDB+`ingress: [{action: Deny, from: [{namespaces: {matchExpressions: [{key: x, operator: Like}]}}]}]`) +
			shop.Admin("b", 1, shop.ForDB+`ingress: [{action: Allow, from: [{pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In}]}}}]}, {action: Allow, from: `+shop.APIPods+`}]`),
		want: []string{"shop/web > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 77, name: "an invalid network is unknown", policies: shop.DBEgress(``),
		tiers: shop.Admin("a", 2, denyTo(`{networks: [203.0.113.0/24, 10.0.0.0/33]}`)) +
			shop.Admin("b", 1, shop.ForDB+`egress: [{action: Allow, to: [{networks: [nonsense, 198.51.100.0/24]}]}]`),
		want: []string{"shop/db > 192.0.2.1 1/tcp deny", "shop/db > 198.51.100.7 1/tcp allow"}},
	{row: 77, name: "a network is read as strictly as the API does", policies: shop.DBEgress(``),
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Allow, to: [{networks: [010.0.0.0/8, "::ffff:10.0.0.0/104", 198.51.100.0/24]}]}]`),
		want:  []string{"shop/db > shop/web 1/tcp deny", "shop/db > 198.51.100.7 1/tcp allow"}},
	{row: 77, name: "a list without peers is unknown", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: []}]`) + shop.Admin("b", 2, `subject: {namespaces: {matchLabels: {team: b}}}, egress: [{action: Deny, to: []}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "infra/mon > 203.0.113.9 1/tcp deny", "shop/web > infra/mon 1/tcp allow"}},
	{row: 77, name: "an unknown action denies what the rule matches, and is asked in its place",
		tiers: shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`ingress: [{action: Accept, from: `+shop.APIPods+`}, {action: Log, from: `+shop.WebPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow", "infra/mon > shop/db 1/tcp allow"}},
	{row: 77, name: "the action of the other version is unknown",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Accept, from: `+shop.WebPods+`}]`) + shop.ClusterPolicy("Admin", "b", 2, shop.ForDB+`ingress: [{action: Allow, from: `+shop.APIPods+`}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 77, name: "an unknown action with an unknown peer denies everything",
		tiers: shop.Baseline(shop.ForDB + `ingress: [{action: Log, from: [{}]}]`), want: []string{"203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 77, name: "a policy without a subject, with two, or with an invalid one has no effect",
		tiers: shop.Admin("a", 1, `subject: {}, `+shop.DenyWeb) + shop.Admin("b", 1, `subject: {namespaces: {}, pods: {namespaceSelector: {}, podSelector: {}}}, `+shop.DenyWeb) +
			shop.ClusterPolicy("Admin", "c", 1, `subject: {namespaces: {matchExpressions: [{key: x, operator: Like}]}}, `+shop.DenyWeb) +
			shop.Baseline(`subject: {pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: x, operator: In}]}}}, `+shop.DenyWeb),
		want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 78, name: "the own node reaches a pod whatever its ingress rules deny", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`), want: []string{
			"192.168.0.1 > shop/db 8080/tcp allow", "192.168.0.2 > shop/db 8080/tcp deny", "shop/web > shop/db 8080/tcp deny"}},
}
