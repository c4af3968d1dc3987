package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

const (
	toAllPods = `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}`
)

// podRows are rows 37 to 56: pods and nodes, connections.
var podRows = []scenario{
	{row: 37, name: "a pod always reaches itself", policies: shop.DenyAll, want: []string{
		"shop/db > shop/db 1/tcp allow", "10.0.1.3 > 10.0.1.3 1/udp allow", "fd00::1:3 > fd00::1:3 1/tcp allow", "shop/db > shop/web 1/tcp deny"}},
	{row: 38, name: "a pod reaches itself through a Service", policies: shop.DenyAll, want: []string{"10.0.1.3 > shop/db 5432/tcp allow"}},
	{row: 39, name: "the own node is exempt in both directions, by every address of the node", policies: shop.DenyAll, want: []string{
		"192.168.0.1 > shop/db 1/tcp allow", "203.0.113.201 > shop/db 1/tcp allow", "shop/db > 192.168.0.1 1/tcp allow",
		"shop/db > 203.0.113.201 1/tcp allow", "192.168.0.1 > shop/db icmp allow"}},
	{row: 39, name: "the addresses of the node that the pod's status names count", policies: shop.DenyAll,
		edit: func(s *oracle.State) {
			s.Nodes = nil
			shop.PodOf(s, "shop/db").Status.HostIPs = []corev1.HostIP{{IP: "192.168.0.1"}, {IP: "fd00:9::1"}}
			shop.PodOf(s, "shop/web").Status.HostIP = "192.168.0.1"
		}, want: []string{"192.168.0.1 > shop/db 1/tcp allow", "shop/db > fd00:9::1 1/tcp allow", "192.168.0.1 > shop/web 1/tcp allow",
			"192.168.0.1 > shop/api 1/tcp deny"}},
	{row: 39, name: "the exemption can be turned off", policies: shop.DenyAll, opts: []oracle.Option{oracle.AllowNodeTraffic(false)}, want: []string{
		"192.168.0.1 > shop/db 1/tcp deny", "shop/db > 192.168.0.1 1/tcp deny", "shop/db > shop/db 1/tcp allow"}},
	{row: 40, name: "other nodes are external addresses", policies: shop.DenyAll, want: []string{
		"192.168.0.2 > shop/db 1/tcp deny", "shop/db > 192.168.0.2 1/tcp deny"}},
	{row: 40, name: "other nodes are matched by blocks", policies: shop.DBFrom(`{ipBlock: {cidr: 192.168.0.0/24}}`), want: []string{
		"192.168.0.2 > shop/db 1/tcp allow", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 41, name: "a pod in the host network is not a peer of selectors", policies: shop.AllowWeb, edit: addHostPod, want: []string{
		"infra/agent > shop/db 1/tcp deny", "192.168.0.2 > shop/db 1/tcp deny", "infra/web > shop/db 1/tcp allow"}},
	{row: 41, name: "a pod in the host network is not a subject",
		policies: `{metadata: {namespace: infra}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}`, edit: addHostPod, want: []string{
			"shop/db > infra/agent 1/tcp allow", "infra/agent > shop/db 1/tcp allow", "shop/db > infra/web 1/tcp deny"}},
	{row: 41, name: "a pod in the host network is matched by a block with the node's address",
		policies: shop.DBFrom(`{ipBlock: {cidr: 192.168.0.2/32}}`), edit: addHostPod, want: []string{"infra/agent > shop/db 1/tcp allow"}},
	{row: 41, name: "a pod in the host network of the own node is that node", policies: shop.DenyAll, edit: addHostPod, want: []string{
		"infra/agent > shop/api 1/tcp allow", "shop/api > infra/agent 1/tcp allow", "infra/agent > shop/db 1/tcp deny"}},
	{row: 42, name: "a finished pod is not a peer, its address is nobody's", policies: shop.AllowWeb,
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/web").Status.Phase = corev1.PodSucceeded
			shop.PodOf(s, "infra/web").Status.Phase = corev1.PodFailed
		}, want: []string{"10.0.1.1 > shop/db 1/tcp deny", "10.0.2.1 > shop/db 1/tcp deny"}},
	{row: 42, name: "a finished pod is not a subject", policies: shop.DenyAll,
		edit: func(s *oracle.State) { shop.PodOf(s, "shop/db").Status.Phase = corev1.PodFailed },
		want: []string{"203.0.113.9 > 10.0.1.3 1/tcp allow", "203.0.113.9 > 10.0.1.1 1/tcp deny"}},
	{row: 43, name: "a terminating pod is enforced and is a peer", policies: shop.AllowWeb,
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/web").DeletionTimestamp = &metav1.Time{}
			shop.PodOf(s, "shop/db").DeletionTimestamp = &metav1.Time{}
		}, want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 44, name: "a pod without an address is judged by its labels", policies: shop.AllowWeb + `
---
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 7}]}]}`,
		edit: func(s *oracle.State) {
			for _, id := range []string{"shop/web", "shop/api"} {
				shop.SetIPs(shop.PodOf(s, id))
				shop.PodOf(s, id).Status.Phase = corev1.PodPending
			}
		}, want: []string{"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny", "shop/api > shop/db 7/tcp deny", "10.0.1.1 > shop/db 1/tcp deny"}},
	{row: 45, name: "a new pod on an old address inherits nothing", policies: shop.AllowWeb,
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/web").Status.Phase = corev1.PodSucceeded
			shop.SetIPs(shop.PodOf(s, "shop/api"), "10.0.1.1")
		}, want: []string{"10.0.1.1 > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny"}},
	{row: 45, name: "while two pods have one address, both are subjects", policies: shop.AllowWeb,
		edit: func(s *oracle.State) { shop.SetIPs(shop.PodOf(s, "infra/mon"), "10.0.1.3") },
		want: []string{"203.0.113.9 > 10.0.1.3 1/tcp deny", "203.0.113.9 > infra/mon 1/tcp allow", "203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 45, name: "while two pods have one address, both are peers", policies: shop.AllowWeb,
		edit: func(s *oracle.State) { shop.SetIPs(shop.PodOf(s, "infra/mon"), "10.0.1.1") },
		want: []string{"10.0.1.1 > shop/db 1/tcp allow", "infra/mon > shop/db 1/tcp deny"}},
	{row: 45, name: "a named port and its peer must be of one pod", policies: shop.DBEgress(`{to: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: extra}]}`),
		edit: func(s *oracle.State) {
			shop.SetIPs(shop.PodOf(s, "infra/mon"), "10.0.1.2")
			shop.PodOf(s, "infra/mon").Spec.Containers[0] = shop.Container("extra 1 TCP", "http 1 TCP")
		}, want: []string{"shop/db > 10.0.1.2 1/tcp deny"}},
	{row: 46, name: "every address of a pod is a subject and a peer", policies: shop.AllowWeb, want: []string{
		"10.0.1.1 > 10.0.1.3 1/tcp allow", "fd00::1:1 > fd00::1:3 1/tcp allow", "10.0.1.2 > 10.0.1.3 1/tcp deny", "fd00::1:2 > fd00::1:3 1/tcp deny"}},
	{row: 46, name: "addresses of two families do not meet", want: []string{"10.0.1.1 > fd00::1:3 1/tcp deny"}},
	{row: 47, name: "which containers a pod has does not matter to selection", policies: shop.DenyDB,
		edit: func(s *oracle.State) {
			p := shop.PodOf(s, "shop/db")
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		}, want: []string{"shop/web > shop/db 1/tcp deny"}},
	{row: 49, name: "an allowed flow does not allow the reverse initiation", policies: shop.AllowWeb + `
---
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`, want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/db > shop/web 1/tcp deny"}},
	{row: 52, name: "a rule without ports matches every protocol", policies: toAllPods, want: []string{
		"shop/db > shop/web icmp allow", "shop/db > shop/web 47 allow", "shop/db > 203.0.113.9 icmp deny"}},
	{row: 52, name: "a rule with ports matches no other protocol", policies: shop.DBPorts(`{}, {protocol: UDP}, {protocol: SCTP}`), want: []string{
		"shop/web > shop/db icmp deny", "shop/web > shop/db 47 deny", "shop/web > shop/db any deny", "shop/web > shop/db 1/sctp allow"}},
	{row: 56, name: "the verdict is that of the backend pod", policies: shop.AllowWeb, want: []string{
		"shop/web > shop/db 5432/tcp allow", "shop/web > 10.96.0.7 5432/tcp allow", "shop/api > shop/db 5432/tcp deny"}},
}
