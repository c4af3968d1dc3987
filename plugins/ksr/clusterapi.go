package ksr

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// What follows brings the types of both versions of the API into one form.

// adminRule returns a rule of v1alpha1.
func adminRule(name, action string, ports *[]v1alpha1.AdminNetworkPolicyPort, peers []clusterPeer) clusterRule {
	r := clusterRule{name: name, action: action, peers: peers, portList: "ports", anyPort: ports == nil}
	if action == string(v1alpha2.ClusterNetworkPolicyRuleActionAccept) {
		r.action += " (of v1alpha2)" // here it is called Allow
	}
	if ports != nil {
		for _, p := range *ports {
			r.ports = append(r.ports, adminPort(p))
		}
	}
	return r
}

func adminPort(p v1alpha1.AdminNetworkPolicyPort) clusterPort {
	fields := 0
	var out clusterPort
	if n := p.PortNumber; n != nil {
		fields++
		out = clusterPort{at: "portNumber", protocol: string(n.Protocol), first: n.Port, last: n.Port}
	}
	if p.NamedPort != nil {
		fields++
		out = clusterPort{at: "namedPort", name: p.NamedPort}
	}
	if r := p.PortRange; r != nil {
		fields++
		out = clusterPort{at: "portRange", protocol: string(r.Protocol), first: r.Start, last: r.End}
	}
	if fields != 1 {
		return clusterPort{}
	}
	out.known = true
	return out
}

func ingressPeers(peers []v1alpha1.AdminNetworkPolicyIngressPeer) []clusterPeer {
	var out []clusterPeer
	for _, p := range peers {
		out = append(out, clusterPeer{list: "from", namespaces: p.Namespaces, pods: podsOfAdmin(p.Pods)})
	}
	return out
}

func egressPeers(peers []v1alpha1.AdminNetworkPolicyEgressPeer) []clusterPeer {
	var out []clusterPeer
	for _, p := range peers {
		out = append(out, egressPeer(p.Namespaces, podsOfAdmin(p.Pods), p.Nodes, asTexts(p.Networks), asTexts(p.DomainNames)))
	}
	return out
}

func baselinePeers(peers []v1alpha1.BaselineAdminNetworkPolicyEgressPeer) []clusterPeer {
	var out []clusterPeer
	for _, p := range peers {
		out = append(out, egressPeer(p.Namespaces, podsOfAdmin(p.Pods), p.Nodes, asTexts(p.Networks), nil))
	}
	return out
}

func egressPeer(namespaces *metav1.LabelSelector, pods *namespacedPods, nodes *metav1.LabelSelector, networks, domainNames []string) clusterPeer {
	return clusterPeer{list: "to", namespaces: namespaces, pods: pods, nodes: nodes, networks: networks, domainNames: domainNames}
}

// tierRule returns a rule of v1alpha2. A list of protocols that is empty is one that
// is not there.
func tierRule(name, action string, protocols []v1alpha2.ClusterNetworkPolicyProtocol, peers []clusterPeer) clusterRule {
	r := clusterRule{name: name, action: action, peers: peers, portList: "protocols", anyPort: len(protocols) == 0}
	if action == string(v1alpha1.AdminNetworkPolicyRuleActionAllow) {
		r.action += " (of v1alpha1)" // here it is called Accept
	}
	for _, p := range protocols {
		r.ports = append(r.ports, tierPort(p))
	}
	return r
}

func tierPort(p v1alpha2.ClusterNetworkPolicyProtocol) clusterPort {
	fields := 0
	var out clusterPort
	take := func(name, protocol string, port *v1alpha2.Port) {
		fields++
		out = destinationPort(port)
		out.at, out.protocol = name+".destinationPort", protocol
	}
	if p.TCP != nil {
		take("tcp", "TCP", p.TCP.DestinationPort)
	}
	if p.UDP != nil {
		take("udp", "UDP", p.UDP.DestinationPort)
	}
	if p.SCTP != nil {
		take("sctp", "SCTP", p.SCTP.DestinationPort)
	}
	if p.DestinationNamedPort != "" {
		fields++
		out = clusterPort{at: "destinationNamedPort", known: true, name: &p.DestinationNamedPort}
	}
	if fields != 1 {
		return clusterPort{}
	}
	return out
}

// destinationPort returns a port that is not known for one that names nothing, or
// two things: what it would be in a later version cannot be guessed.
func destinationPort(port *v1alpha2.Port) clusterPort {
	switch {
	case port == nil || (port.Number != 0) == (port.Range != nil):
		return clusterPort{}
	case port.Range != nil:
		return clusterPort{known: true, first: port.Range.Start, last: port.Range.End, strict: true}
	}
	return clusterPort{known: true, first: port.Number, last: port.Number}
}

func clusterIngressPeers(peers []v1alpha2.ClusterNetworkPolicyIngressPeer) []clusterPeer {
	var out []clusterPeer
	for _, p := range peers {
		out = append(out, clusterPeer{list: "from", namespaces: p.Namespaces, pods: podsOfCluster(p.Pods)})
	}
	return out
}

func clusterEgressPeers(peers []v1alpha2.ClusterNetworkPolicyEgressPeer) []clusterPeer {
	var out []clusterPeer
	for _, p := range peers {
		out = append(out, egressPeer(p.Namespaces, podsOfCluster(p.Pods), p.Nodes, asTexts(p.Networks), asTexts(p.DomainNames)))
	}
	return out
}

// asTexts returns names or networks as text.
func asTexts[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}
