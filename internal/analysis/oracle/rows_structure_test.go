package oracle_test

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// structureRows are rows 1 to 18: selection and structure.
var structureRows = []scenario{
	{row: 1, name: "without policies everything is open", want: []string{
		"shop/web > shop/db 5432/tcp allow", "shop/web > 203.0.113.9 443/tcp allow",
		"203.0.113.9 > shop/db 53/udp allow", "shop/web > shop/db icmp allow"}},
	{row: 1, name: "a policy for another pod leaves this one open", policies: shop.DenyDB, want: []string{
		"shop/db > shop/web 80/tcp allow", "shop/web > shop/db 80/tcp deny"}},
	{row: 2, name: "the empty pod selector selects all pods of the namespace",
		policies: `spec: {podSelector: {}, policyTypes: [Ingress]}`, want: []string{
			"infra/mon > shop/web 80/tcp deny", "infra/mon > shop/db 80/tcp deny", "shop/web > infra/mon 80/tcp allow"}},
	{row: 2, name: "an absent pod selector is the empty one",
		policies: `spec: {policyTypes: [Ingress]}`, want: []string{
			"infra/mon > shop/web 80/tcp deny", "infra/mon > shop/api 80/tcp deny"}},
	{row: 3, name: "a policy has no effect outside of its namespace",
		policies: `spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`, want: []string{
			"shop/api > shop/web 80/tcp deny", "shop/api > infra/web 80/tcp allow", "infra/web > shop/api 80/tcp allow"}},
	{row: 4, name: "without policyTypes ingress is isolated and egress is not",
		policies: `spec: {podSelector: {matchLabels: {app: db}}}`, want: []string{
			"shop/web > shop/db 80/tcp deny", "shop/db > shop/web 80/tcp allow"}},
	{row: 4, name: "without policyTypes a list of egress rules isolates egress as well",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"shop/web > shop/db 80/tcp deny", "shop/db > shop/web 80/tcp allow", "shop/db > shop/api 80/tcp deny"}},
	{row: 4, name: "without policyTypes an empty list of egress rules does not isolate egress",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, egress: []}`, want: []string{
			"shop/web > shop/db 80/tcp deny", "shop/db > shop/web 80/tcp allow"}},
	{row: 4, name: "a policy with an unknown type is refused as a whole, other policies still isolate", policies: shop.DenyDB + `
---
spec: {podSelector: {}, policyTypes: [Ingress, Forward]}`, want: []string{
		"shop/web > shop/db 80/tcp deny", "shop/db > shop/web 80/tcp allow"}},
	{row: 5, name: "with policyTypes Egress the ingress section is ignored",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"shop/api > shop/db 80/tcp allow", "shop/db > shop/api 80/tcp deny"}},
	{row: 5, name: "with policyTypes Ingress the egress section is ignored",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"shop/api > shop/db 80/tcp deny", "shop/db > shop/api 80/tcp allow"}},
	{row: 6, name: "an absent list of rules isolates and allows nothing", policies: shop.DenyDB, want: []string{
		"shop/web > shop/db 5432/tcp deny", "203.0.113.9 > shop/db 53/udp deny", "shop/web > shop/db icmp deny"}},
	{row: 6, name: "an empty list of rules isolates and allows nothing",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: []}`, want: []string{
			"shop/web > shop/db 5432/tcp deny", "203.0.113.9 > shop/db 53/udp deny", "shop/db > shop/web 1/tcp allow"}},
	{row: 7, name: "the empty rule allows everything",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`, want: []string{
			"shop/web > shop/db 5432/tcp allow", "203.0.113.9 > shop/db 53/udp allow", "shop/web > shop/db icmp allow",
			"shop/web > shop/db 47 allow", "shop/db > 203.0.113.9 1/sctp allow", "192.168.0.2 > shop/db 22/tcp allow"}},
	{row: 8, name: "empty lists of peers and ports match all",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [{from: [], ports: []}], egress: [{to: [], ports: []}]}`,
		want: []string{"203.0.113.9 > shop/db 53/udp allow", "192.168.0.2 > shop/db icmp allow", "shop/db > ghost/web 80/tcp allow",
			"shop/db > 192.168.0.2 22/tcp allow"}},
	{row: 8, name: "no ports with a peer match all protocols of that peer only",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`, want: []string{
			"shop/web > shop/db 9/sctp allow", "shop/web > shop/db icmp allow", "shop/api > shop/db 9/tcp deny"}},
	{row: 8, name: "no peers with a port match everybody on that port only",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}`, want: []string{
			"203.0.113.9 > shop/db 5432/tcp allow", "ghost/web > shop/db 5432/tcp allow", "shop/web > shop/db 5433/tcp deny"}},
	{row: 9, name: "ports and peers of a rule must both match, rules and list items are alternatives", policies: `
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}, {podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 1}, {port: 2}]
  - from: [{namespaceSelector: {matchLabels: {team: b}}}]
    ports: [{port: 3}]`, want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp allow", "shop/api > shop/db 1/tcp allow",
		"shop/web > shop/db 3/tcp deny", "infra/mon > shop/db 3/tcp allow", "infra/mon > shop/db 1/tcp deny"}},
	{row: 9, name: "policies are a union, a policy that allows nothing takes nothing away", policies: shop.DenyDB + `
---
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1}]}]}
---
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 2}]}]}`, want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 2/tcp allow", "shop/web > shop/db 3/tcp deny"}},
	{row: 10, name: "egress of the source and ingress of the destination must allow", policies: `
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 1}, {port: 2}]}]}
---
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 2}, {port: 3}]}]}`, want: []string{
		"shop/web > shop/db 1/tcp deny", "shop/web > shop/db 2/tcp allow", "shop/web > shop/db 3/tcp deny",
		"shop/api > shop/db 3/tcp allow", "shop/web > shop/api 1/tcp allow"}},
	{row: 11, name: "a pod selector alone means pods of the policy's namespace",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`, want: []string{
			"shop/web > shop/db 1/tcp allow", "infra/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 11, name: "a namespace selector alone means all pods of these namespaces",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`, want: []string{
			"infra/web > shop/db 1/tcp allow", "infra/mon > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 11, name: "both selectors in one item must match",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"infra/web > shop/db 1/tcp allow", "infra/mon > shop/db 1/tcp deny", "shop/web > shop/db 1/tcp deny"}},
	{row: 11, name: "in two items either may match",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"infra/mon > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 12, name: "the empty namespace selector means all namespaces, but nothing outside of the cluster",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {}}]}]}`, want: []string{
			"infra/mon > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp deny",
			"192.168.0.2 > shop/db 1/tcp deny"}},
	{row: 12, name: "the empty pod selector alone means all pods of the own namespace",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}`, want: []string{
			"shop/web > shop/db 1/tcp allow", "infra/web > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 13, name: "a peer without a field matches nothing",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{}]}]}`, want: []string{
			"shop/web > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 13, name: "a block together with a selector matches nothing, the other peers still count",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}, podSelector: {}}, {podSelector: {matchLabels: {app: api}}}]}]}`,
		want:     []string{"shop/web > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 14, name: "In needs the key", policies: shop.FromPods(`{key: role, operator: In, values: ["", x]}`), want: []string{
		"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 14, name: "NotIn matches when the key is missing", policies: shop.FromPods(`{key: role, operator: NotIn, values: [""]}`), want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 14, name: "NotIn matches another value", policies: shop.FromPods(`{key: role, operator: NotIn, values: [x]}`), want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp allow"}},
	{row: 14, name: "Exists needs the key with any value, also the empty one", policies: shop.FromPods(`{key: role, operator: Exists}`), want: []string{
		"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 14, name: "DoesNotExist matches when the key is missing", policies: shop.FromPods(`{key: role, operator: DoesNotExist}`), want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 14, name: "matchLabels and every expression must match",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}, matchExpressions: [{key: role, operator: DoesNotExist}]}}]}]}`,
		want:     []string{"shop/api > shop/db 1/tcp deny", "shop/web > shop/db 1/tcp deny"}},
	{row: 14, name: "an empty value needs the key",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {role: ""}}}]}]}`, want: []string{
			"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 14, name: "operators work on namespaces", policies: `
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [""]}]}}]}]}`,
		want: []string{"infra/mon > shop/db 1/tcp allow", "ops/cli > shop/db 1/tcp deny", "ghost/web > shop/db 1/tcp deny"}},
	{row: 15, name: "an unknown operator matches nothing", policies: shop.FromPods(`{key: app, operator: Like, values: [web]}`), want: []string{
		"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 15, name: "In without values matches nothing", policies: shop.FromPods(`{key: app, operator: In}`), want: []string{
		"shop/web > shop/db 1/tcp deny"}},
	{row: 15, name: "NotIn without values matches nothing", policies: shop.FromPods(`{key: app, operator: NotIn}`), want: []string{
		"shop/web > shop/db 1/tcp deny"}},
	{row: 15, name: "an invalid namespace selector matches nothing", policies: `
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists, values: [x]}]}}]}]}`,
		want: []string{"infra/mon > shop/db 1/tcp deny"}},
	{row: 15, name: "a policy with an invalid pod selector is refused as a whole, other policies still isolate", policies: shop.DenyDB + `
---
spec: {podSelector: {matchExpressions: [{key: app, operator: Like}]}, ingress: [{}]}`, want: []string{
		"shop/api > shop/db 1/tcp deny", "shop/api > shop/web 1/tcp allow"}},
	{row: 16, name: "a namespace has its name as a label also when the object lacks it",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: infra}}}]}]}`,
		want:     []string{"infra/mon > shop/db 1/tcp allow", "ops/cli > shop/db 1/tcp deny"}},
	{row: 16, name: "that label cannot be forged",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: infra}}}]}]}`,
		edit: func(s *oracle.State) {
			shop.NamespaceOf(s, "ops").Labels[corev1.LabelMetadataName] = "infra"
		}, want: []string{"infra/mon > shop/db 1/tcp allow", "ops/cli > shop/db 1/tcp deny"}},
	{row: 17, name: "a namespace whose object is unknown is selected by nothing, not even by {}",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]}`,
		want:     []string{"ghost/web > shop/db 1/tcp deny", "infra/web > shop/db 1/tcp allow"}},
	{row: 17, name: "it is selected as soon as it appears",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: g}}}]}]}`,
		edit: func(s *oracle.State) {
			s.Namespaces = append(s.Namespaces, shop.Namespace("ghost", map[string]string{"team": "g"}))
		}, want: []string{"ghost/web > shop/db 1/tcp allow"}},
	{row: 17, name: "policies and own-namespace peers of an unknown namespace work",
		policies: `{metadata: {namespace: ghost}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}}`,
		edit: func(s *oracle.State) {
			s.Pods = append(s.Pods, shop.Pod("ghost", "two", "app=two", "n1", []string{"10.0.4.2"}))
		}, want: []string{"ghost/two > ghost/web 1/tcp allow", "shop/web > ghost/web 1/tcp deny"}},
	{row: 18, name: "a label changes the role of a subject",
		policies: shop.DenyDB, edit: func(s *oracle.State) { shop.PodOf(s, "shop/api").Labels["app"] = "db" },
		want: []string{"shop/web > shop/api 1/tcp deny"}},
	{row: 18, name: "a label changes the role of a peer",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`,
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/api").Labels["app"] = "web"
			shop.PodOf(s, "shop/web").Labels = nil
		}, want: []string{"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
}
