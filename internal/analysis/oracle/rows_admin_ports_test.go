package oracle_test

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// denyPorts is an AdminNetworkPolicy for the database that denies some ports to everyone.
func denyPorts(ports string) string {
	return shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`, ports: [`+ports+`]}]`)
}

// denyProtocols is the same as a ClusterNetworkPolicy.
func denyProtocols(protocols string) string {
	return shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`, protocols: [`+protocols+`]}]`)
}

// adminPortRows are rows 71 and 72, and invalid ports (row 77).
var adminPortRows = []scenario{
	{row: 71, name: "a name stands for ports of every protocol of the subject on ingress", tiers: denyPorts(`{namedPort: dns}`), want: []string{
		"shop/web > shop/db 53/udp deny", "shop/web > shop/db 5353/tcp deny", "shop/web > shop/db 53/tcp allow", "shop/web > shop/db 5353/udp allow"}},
	{row: 71, name: "a name of v1alpha2 is the same", tiers: denyProtocols(`{destinationNamedPort: dns}`), want: []string{
		"shop/web > shop/db 53/udp deny", "shop/web > shop/db 5353/tcp deny", "shop/web > shop/db 53/tcp allow"}},
	{row: 71, name: "on egress the name is that of the peer", tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Deny, to: `+shop.AllPods+`, ports: [{namedPort: http}]}]`), want: []string{
		"shop/db > shop/web 8080/tcp deny", "shop/db > shop/api 9090/tcp deny", "shop/db > shop/web 9090/tcp allow", "shop/db > infra/web 8081/tcp deny", "shop/db > infra/mon 8080/tcp allow"}},
	{row: 71, name: "a name matches nothing where nobody has it", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: `+shop.AllPods+`, ports: [{namedPort: none}, {namedPort: pg}]}]`), want: []string{
			"shop/web > shop/db 5432/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 71, name: "beside networks, nodes or domain names a name matches nothing", policies: shop.DBEgress(``),
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Allow, to: [{namespaces: {}}, {networks: [10.0.0.0/8]}], ports: [{namedPort: http}, {portNumber: {port: 1}}]}]`) +
			shop.ClusterPolicy("Admin", "b", 2, shop.ForDB+`egress: [{action: Accept, to: [{namespaces: {}}, {nodes: {}}], protocols: [{destinationNamedPort: http}]}]`) +
			shop.ClusterPolicy("Admin", "c", 3, shop.ForDB+`egress: [{action: Accept, to: [{namespaces: {}}, {domainNames: [a.b]}], protocols: [{destinationNamedPort: http}]}]`), want: []string{
			"shop/db > shop/web 8080/tcp deny", "shop/db > shop/web 1/tcp allow", "shop/db > 10.9.9.9 1/tcp allow"}},
	{row: 71, name: "a Deny with a name beside networks is understood: the name matches nothing",
		tiers: shop.Admin("a", 1, shop.ForDB+`egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}], ports: [{namedPort: http}]}]`), want: []string{"shop/db > shop/web 8080/tcp allow"}},
	{row: 71, name: "names of sidecars count", tiers: denyPorts(`{namedPort: mesh}`),
		edit: func(s *oracle.State) {
			always := corev1.ContainerRestartPolicyAlways
			c := shop.Container("mesh 15001 SCTP")
			c.RestartPolicy = &always
			shop.PodOf(s, "shop/db").Spec.InitContainers = []corev1.Container{c}
		}, want: []string{"shop/web > shop/db 15001/sctp deny", "shop/web > shop/db 15001/tcp allow"}},
	{row: 71, name: "an invalid name matches nothing", tiers: denyPorts(`{namedPort: ""}, {namedPort: Http_1}`), want: []string{"shop/web > shop/db 1/tcp allow"}},
	{row: 72, name: "ranges are inclusive", tiers: denyPorts(`{portRange: {protocol: TCP, start: 10, end: 20}}`), want: []string{
		"shop/web > shop/db 9/tcp allow", "shop/web > shop/db 10/tcp deny", "shop/web > shop/db 20/tcp deny", "shop/web > shop/db 21/tcp allow", "shop/web > shop/db 15/udp allow"}},
	{row: 72, name: "a range of v1alpha1 may be one port", tiers: denyPorts(`{portRange: {start: 10, end: 10}}`), want: []string{
		"shop/web > shop/db 10/tcp deny", "shop/web > shop/db 11/tcp allow"}},
	{row: 72, name: "a range of v1alpha2 may not", tiers: denyProtocols(`{tcp: {destinationPort: {range: {start: 10, end: 10}}}}, {udp: {destinationPort: {range: {start: 10, end: 11}}}}`), want: []string{
		"shop/web > shop/db 10/tcp allow", "shop/web > shop/db 10/udp deny", "shop/web > shop/db 11/udp deny"}},
	{row: 72, name: "an impossible port matches nothing, others count", tiers: denyPorts(
		`{portRange: {start: 20, end: 10}}, {portNumber: {port: 0}}, {portNumber: {port: 70000}}, {portRange: {start: 0, end: 9}}, {portNumber: {port: 7, protocol: SCTP}}`), want: []string{
		"shop/web > shop/db 15/tcp allow", "shop/web > shop/db 5/tcp allow", "shop/web > shop/db 7/sctp deny"}},
	{row: 72, name: "an impossible port of v1alpha2 matches nothing", tiers: denyProtocols(
		`{tcp: {destinationPort: {number: 70000}}}, {tcp: {destinationPort: {range: {start: 9, end: 8}}}}`), want: []string{"shop/web > shop/db 8/tcp allow"}},
	{row: 77, name: "a port without a field, or with two, is unknown", policies: shop.DenyDB,
		tiers: denyPorts(`{}`) + shop.Admin("0", 0, shop.ForDB+`ingress: [{action: Allow, from: `+shop.APIPods+`, ports: [{}, {namedPort: pg, portNumber: {port: 1}}, {portNumber: {port: 2}}]}]`),
		want:  []string{"203.0.113.9 > shop/db icmp deny", "shop/api > shop/db 2/tcp allow", "shop/api > shop/db 1/tcp deny"}},
	{row: 77, name: "a protocol of v1alpha2 without a field, or with two, is unknown", policies: shop.AllowWeb,
		tiers: shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`ingress: [{action: Accept, from: `+shop.APIPods+`, protocols: [{}, {tcp: {}}, {udp: {destinationPort: {}}}, {tcp: {destinationPort: {number: 1}}, destinationNamedPort: pg}]}]`) +
			shop.ClusterPolicy("Admin", "b", 2, shop.ForDB+`ingress: [{action: Pass, from: `+shop.APIPods+`, protocols: [{tcp: {}}]}]`),
		want: []string{"shop/web > shop/db 1/tcp deny", "shop/api > shop/db 1/tcp deny", "203.0.113.9 > shop/db 1/udp deny"}},
	{row: 77, name: "an unknown protocol is unknown", tiers: denyPorts(`{portNumber: {protocol: DCCP, port: 1}}`), want: []string{
		"shop/web > shop/db 2/udp deny", "203.0.113.9 > shop/db 2/udp deny"}},
	{row: 77, name: "an empty list of ports of v1alpha1 is unknown", policies: shop.DenyDB,
		tiers: shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Allow, from: `+shop.AllPods+`, ports: []}]`) + shop.Admin("b", 1, `subject: {namespaces: {matchLabels: {team: b}}}, ingress: [{action: Deny, from: `+shop.WebPods+`, ports: []}]`),
		want:  []string{"shop/web > shop/db 1/tcp deny", "shop/db > infra/mon 1/tcp deny"}},
	{row: 77, name: "an empty list of protocols of v1alpha2 is none",
		tiers: shop.ClusterPolicy("Admin", "a", 1, shop.ForDB+`ingress: [{action: Deny, from: `+shop.WebPods+`, protocols: []}]`), want: []string{"shop/web > shop/db icmp deny", "shop/api > shop/db 1/tcp allow"}},
	{row: 77, name: "a protocol that is not named is TCP", tiers: denyPorts(`{portNumber: {port: 1}}, {portRange: {start: 5, end: 6}}`), want: []string{
		"shop/web > shop/db 1/tcp deny", "shop/web > shop/db 6/tcp deny", "shop/web > shop/db 1/udp allow"}},
}
