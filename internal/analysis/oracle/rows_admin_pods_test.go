package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

const denyEverything = shop.ForAll + `ingress: [{action: Deny, from: ` + shop.AllPods + `}], egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]`

// adminPodRows are rows 37 to 46 and 52 for admin policies: subjects, and pods and nodes.
var adminPodRows = []scenario{
	{row: 37, name: "the own address of a pod is no subject of administrators", tiers: shop.Admin("a", 1, denyEverything), want: []string{
		"shop/db > shop/db 1/tcp allow", "fd00::1:3 > fd00::1:3 1/udp allow", "shop/db > shop/web 1/tcp deny"}},
	{row: 39, name: "the exemption of the own node is one from NetworkPolicy only", policies: shop.DenyAll,
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Deny, to: [{nodes: {}}]}]`), want: []string{
			"shop/db > 192.168.0.1 1/tcp deny", "192.168.0.1 > shop/db 1/tcp allow", "shop/web > 192.168.0.1 1/tcp allow"}},
	{row: 39, name: "the baseline tier denies the own node where nothing isolates",
		tiers: shop.Baseline(shop.ForDB + `egress: [{action: Deny, to: [{networks: [192.168.0.0/24]}]}]`), want: []string{
			"shop/db > 192.168.0.1 1/tcp deny", "192.168.0.1 > shop/db 1/tcp allow"}},
	{row: 39, name: "a NetworkPolicy that isolates keeps the baseline tier from the own node", policies: shop.DenyAll,
		tiers: shop.Baseline(shop.ForDB + `egress: [{action: Deny, to: [{nodes: {}}]}]`), want: []string{
			"shop/db > 192.168.0.1 1/tcp allow", "shop/db > 192.168.0.2 1/tcp deny"}},
	{row: 39, name: "what is passed on gets to the exemption", policies: shop.DenyAll,
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Pass, to: [{nodes: {}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]`), want: []string{
			"shop/db > 192.168.0.1 1/tcp allow", "shop/db > 192.168.0.2 1/tcp deny", "shop/db > 203.0.113.9 1/tcp deny"}},
	{row: 39, name: "an allowed node needs no exemption", policies: shop.DenyAll, opts: []oracle.Option{oracle.AllowNodeTraffic(false)},
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Allow, to: [{nodes: {}}]}]`), want: []string{
			"shop/db > 192.168.0.1 1/tcp allow", "192.168.0.1 > shop/db 1/tcp deny"}},
	{row: 41, name: "a pod in the host network is not a subject of administrators", tiers: shop.Admin("a", 1, denyEverything), edit: addHostPod, want: []string{
		"infra/agent > 203.0.113.9 1/tcp allow", "203.0.113.9 > infra/agent 1/tcp allow", "infra/mon > 203.0.113.9 1/tcp deny"}},
	{row: 41, name: "a pod in the host network is not a peer of administrators",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb+`, egress: [{action: Deny, to: `+shop.WebPods+`}]`), edit: addHostPod, want: []string{
			"infra/agent > shop/db 1/tcp allow", "shop/db > infra/agent 1/tcp allow", "infra/web > shop/db 1/tcp deny", "shop/db > infra/web 1/tcp deny"}},
	{row: 42, name: "a finished pod is neither subject nor peer of administrators",
		tiers: shop.Admin("a", 1, shop.ForAll+`ingress: [{action: Deny, from: `+shop.WebPods+`}], egress: [{action: Deny, to: `+shop.WebPods+`}]`),
		edit:  func(s *oracle.State) { shop.PodOf(s, "shop/web").Status.Phase = corev1.PodSucceeded },
		want:  []string{"10.0.1.1 > shop/db 1/tcp allow", "shop/db > 10.0.1.1 1/tcp allow", "infra/web > shop/db 1/tcp deny"}},
	{row: 43, name: "a terminating pod is subject and peer of administrators",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb),
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/web").DeletionTimestamp = &metav1.Time{}
			shop.PodOf(s, "shop/db").DeletionTimestamp = &metav1.Time{}
		}, want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 44, name: "a pod without an address is judged by its labels, no network and no node is it",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb+`, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}, {nodes: {}}]}]`),
		edit:  func(s *oracle.State) { shop.SetIPs(shop.PodOf(s, "shop/web")) },
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/db > shop/web 1/tcp allow", "shop/db > shop/api 1/tcp deny"}},
	{row: 45, name: "while two pods have one address, each of them makes a rule match",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb), edit: func(s *oracle.State) { shop.SetIPs(shop.PodOf(s, "infra/mon"), "10.0.1.1") },
		want: []string{"10.0.1.1 > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 45, name: "while two pods have one address, each of them is asked about",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb+`, egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]`),
		edit:  func(s *oracle.State) { shop.SetIPs(shop.PodOf(s, "infra/mon"), "10.0.1.3") },
		want:  []string{"shop/web > 10.0.1.3 1/tcp deny", "10.0.1.3 > 203.0.113.9 1/tcp deny", "infra/mon > 203.0.113.9 1/tcp allow"}},
	{row: 46, name: "rules are evaluated for every address",
		tiers: shop.Admin("a", 1, shop.ForDB+shop.DenyWeb), want: []string{"10.0.1.1 > 10.0.1.3 1/tcp deny", "fd00::1:1 > fd00::1:3 1/tcp deny", "fd00::1:2 > fd00::1:3 1/tcp allow"}},
	{row: 52, name: "a rule of administrators without ports matches every protocol, one with ports only those",
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.WebPods+`}, {action: Deny, from: `+shop.APIPods+`, ports: [{portNumber: {protocol: TCP, port: 1}}, {portRange: {protocol: UDP, start: 1, end: 9}}]}]`),
		want:  []string{"shop/web > shop/db icmp deny", "shop/web > shop/db 47 deny", "shop/api > shop/db icmp allow", "shop/api > shop/db 5/udp deny", "shop/api > shop/db 1/sctp allow"}},
	{row: 60, name: "the subject of a policy is by namespace and pod", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, `subject: {pods: {namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: web}}}}, ingress: [{action: Deny, from: `+shop.AllPods+`}]`) +
			shop.ClusterPolicy("Admin", "b", 2, `subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchExpressions: [{key: role, operator: Exists}]}}}, ingress: [{action: Deny, from: `+shop.AllPods+`}]`),
		want: []string{"shop/db > infra/web 1/tcp deny", "shop/db > infra/mon 1/tcp allow", "shop/db > shop/web 1/tcp allow", "shop/db > shop/api 1/tcp deny"}},
	{row: 60, name: "a namespace that is not known is no subject", tiers: shop.Admin("a", 1, denyEverything), want: []string{
		"203.0.113.9 > ghost/web 1/tcp allow", "ghost/web > 203.0.113.9 1/tcp allow"}},
}
