package oracle_test

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// portRows are rows 19 to 29: ports.
var portRows = []scenario{
	{row: 19, name: "an absent protocol is TCP", policies: shop.DBPorts(`{port: 5432}`), want: []string{
		"shop/web > shop/db 5432/tcp allow", "shop/web > shop/db 5432/udp deny", "shop/web > shop/db 5432/sctp deny"}},
	{row: 19, name: "the empty port is all ports of TCP and of nothing else", policies: shop.DBPorts(`{}`), want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 65535/tcp allow", "shop/web > shop/db 1/udp deny",
		"shop/web > shop/db icmp deny"}},
	{row: 19, name: "an unknown or empty protocol matches nothing",
		policies: shop.DBPorts(`{protocol: QUIC, port: 1}, {protocol: tcp, port: 2}, {protocol: "", port: 3}`), want: []string{
			"shop/web > shop/db 1/tcp deny", "shop/web > shop/db 1/udp deny", "shop/web > shop/db 2/tcp deny", "shop/web > shop/db 3/tcp deny"}},
	{row: 20, name: "an absent port is every port of the protocol", policies: shop.DBPorts(`{protocol: UDP}`), want: []string{
		"shop/web > shop/db 1/udp allow", "shop/web > shop/db 65535/udp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 21, name: "endPort is inclusive", policies: shop.DBPorts(`{port: 80, endPort: 90}`), want: []string{
		"shop/web > shop/db 79/tcp deny", "shop/web > shop/db 80/tcp allow", "shop/web > shop/db 85/tcp allow",
		"shop/web > shop/db 90/tcp allow", "shop/web > shop/db 91/tcp deny", "shop/web > shop/db 85/udp deny"}},
	{row: 21, name: "endPort may equal port", policies: shop.DBPorts(`{port: 80, endPort: 80}`), want: []string{
		"shop/web > shop/db 80/tcp allow", "shop/web > shop/db 81/tcp deny"}},
	{row: 21, name: "the widest range is every port", policies: shop.DBPorts(`{port: 1, endPort: 65535}`), want: []string{
		"shop/web > shop/db 1/tcp allow", "shop/web > shop/db 65535/tcp allow"}},
	{row: 21, name: "an inverted range matches nothing, the other ports still count",
		policies: shop.DBPorts(`{port: 90, endPort: 80}, {port: 70}`), want: []string{
			"shop/web > shop/db 80/tcp deny", "shop/web > shop/db 85/tcp deny", "shop/web > shop/db 90/tcp deny", "shop/web > shop/db 70/tcp allow"}},
	{row: 21, name: "endPort needs a number in range",
		policies: shop.DBPorts(`{endPort: 80}, {port: pg, endPort: 6000}, {port: 80, endPort: 65536}, {port: 0, endPort: 9}, {port: 65536}, {port: -1}`), want: []string{
			"shop/web > shop/db 80/tcp deny", "shop/web > shop/db 5432/tcp deny", "shop/web > shop/db 9/tcp deny", "shop/web > shop/db 0/tcp deny",
			"shop/web > shop/db 65535/tcp deny"}},
	{row: 22, name: "a named port on ingress is that of the subject, per pod", policies: `
spec: {podSelector: {matchExpressions: [{key: app, operator: In, values: [web, api]}]}, ingress: [{ports: [{port: http}]}]}`, want: []string{
		"shop/db > shop/web 8080/tcp allow", "shop/db > shop/web 9090/tcp deny", "shop/db > shop/api 9090/tcp allow",
		"shop/db > shop/api 8080/tcp deny", "203.0.113.9 > shop/web 8080/tcp allow", "shop/db > shop/web 8080/udp deny"}},
	{row: 22, name: "a named port on egress is that of the peer, per pod", policies: shop.DBEgress(`{to: [{podSelector: {}}], ports: [{port: http}]}`), want: []string{
		"shop/db > shop/web 8080/tcp allow", "shop/db > shop/web 9090/tcp deny", "shop/db > shop/api 9090/tcp allow", "shop/db > infra/web 8081/tcp deny"}},
	{row: 22, name: "a named port on egress without peers is that of any pod of the cluster", policies: shop.DBEgress(`{ports: [{port: http}]}`), want: []string{
		"shop/db > shop/web 8080/tcp allow", "shop/db > infra/web 8081/tcp allow", "shop/db > infra/web 8080/tcp deny",
		"shop/db > infra/mon 8080/tcp deny", "shop/db > 203.0.113.9 8080/tcp deny"}},
	{row: 23, name: "a name that the destination lacks matches nothing", policies: shop.DBPorts(`{port: http}`), want: []string{
		"shop/web > shop/db 8080/tcp deny", "shop/web > shop/db 5432/tcp deny", "shop/web > shop/db 0/tcp deny"}},
	{row: 23, name: "digits are a name, and the empty name is none", policies: shop.DBPorts(`{port: "5432"}, {port: ""}`),
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/db").Spec.Containers[0].Ports = append(shop.PodOf(s, "shop/db").Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 7000})
		},
		want: []string{"shop/web > shop/db 5432/tcp deny", "shop/web > shop/db 7000/tcp deny"}},
	{row: 24, name: "a named port on egress with a block resolves on the pod that the block covers",
		policies: shop.DBEgress(`{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: http}]}`), want: []string{
			"shop/db > shop/web 8080/tcp allow", "shop/db > shop/web 8081/tcp deny", "shop/db > infra/web 8081/tcp allow",
			"shop/db > 203.0.113.9 8080/tcp deny", "shop/db > 192.168.0.2 8080/tcp deny"}},
	{row: 24, name: "a named port on ingress works with a block",
		policies: `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: pg}]}]}`, want: []string{
			"203.0.113.9 > shop/db 5432/tcp allow", "203.0.113.9 > shop/db 80/tcp deny", "198.51.100.1 > shop/db 5432/tcp deny"}},
	{row: 24, name: "a pod in the host network does not lend its port names",
		policies: shop.DBEgress(`{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: metrics}]}`),
		edit:     addHostPod, want: []string{"shop/db > 192.168.0.2 9100/tcp deny", "shop/db > infra/agent 9100/tcp deny"}},
	{row: 25, name: "the protocol selects among equal names",
		policies: shop.DBPorts(`{port: dns, protocol: UDP}`), want: []string{
			"shop/web > shop/db 53/udp allow", "shop/web > shop/db 53/tcp deny", "shop/web > shop/db 5353/udp deny", "shop/web > shop/db 5353/tcp deny"}},
	{row: 25, name: "the default protocol selects the TCP port of that name", policies: shop.DBPorts(`{port: dns}`), want: []string{
		"shop/web > shop/db 5353/tcp allow", "shop/web > shop/db 53/udp deny"}},
	{row: 25, name: "several names of one number all match", policies: shop.DBPorts(`{port: sql}`), want: []string{
		"shop/web > shop/db 5432/tcp allow", "shop/web > shop/db 53/udp deny"}},
	{row: 25, name: "one name for several numbers matches each", policies: shop.DBPorts(`{port: pg}`),
		edit: func(s *oracle.State) {
			p := shop.PodOf(s, "shop/db")
			p.Spec.Containers = append(p.Spec.Containers, shop.Container("pg 6432 TCP"))
		}, want: []string{"shop/web > shop/db 5432/tcp allow", "shop/web > shop/db 6432/tcp allow", "shop/web > shop/db 6433/tcp deny"}},
	{row: 26, name: "named ports of sidecars count, those of other init containers do not",
		policies: shop.DBPorts(`{port: mesh}, {port: setup}, {port: once}`),
		edit: func(s *oracle.State) {
			always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
			sidecar, once, plain := shop.Container("mesh 15001 TCP"), shop.Container("once 15003 TCP"), shop.Container("setup 15002 TCP")
			sidecar.RestartPolicy, once.RestartPolicy = &always, &never
			shop.PodOf(s, "shop/db").Spec.InitContainers = []corev1.Container{plain, sidecar, once}
		}, want: []string{"shop/web > shop/db 15001/tcp allow", "shop/web > shop/db 15002/tcp deny", "shop/web > shop/db 15003/tcp deny"}},
	{row: 27, name: "a number needs no declared port, and host ports do not matter",
		policies: shop.DBPorts(`{port: 12345}`),
		edit: func(s *oracle.State) {
			shop.PodOf(s, "shop/db").Spec.Containers[0].Ports[0].HostPort = 31000
		}, want: []string{"shop/web > shop/db 12345/tcp allow", "shop/web > shop/db 31000/tcp deny"}},
	{row: 28, name: "a rule for SCTP isolates and never opens TCP", policies: shop.DBPorts(`{port: 80, protocol: SCTP}`), want: []string{
		"shop/web > shop/db 80/sctp allow", "shop/web > shop/db 80/tcp deny", "shop/web > shop/db 80/udp deny"}},
	{row: 29, name: "the port of a rule is the pod's port, not that of a Service in front of it",
		policies: `spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`, want: []string{
			"shop/db > shop/web 8080/tcp deny", "shop/db > shop/web 80/tcp allow"}},
}

// addHostPod adds a pod in the host network of n2.
func addHostPod(s *oracle.State) {
	p := shop.Pod("infra", "agent", "app=web", "n2", []string{"192.168.0.2"}, "metrics 9100 TCP")
	p.Spec.HostNetwork = true
	s.Pods = append(s.Pods, p)
}
