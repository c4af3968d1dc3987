package explain

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// Subjects, peers and ports of admin policies.

// adminPods returns neither field for pods that are not known: both selectors have to
// be there. Every pod of some namespaces is said by the namespaces alone.
func adminPods(m *model.ClusterPolicy_Pods) (*metav1.LabelSelector, *v1alpha1.NamespacedPod) {
	namespaces, pods := Selector(m.GetNamespaces()), Selector(m.GetPods())
	switch {
	case namespaces == nil || pods == nil:
		return nil, nil
	case isEmpty(pods):
		return namespaces, nil
	}
	return nil, &v1alpha1.NamespacedPod{NamespaceSelector: *namespaces, PodSelector: *pods}
}

func clusterPods(m *model.ClusterPolicy_Pods) (*metav1.LabelSelector, *v1alpha2.NamespacedPod) {
	namespaces, pods := adminPods(m)
	if pods == nil {
		return namespaces, nil
	}
	return nil, &v1alpha2.NamespacedPod{NamespaceSelector: pods.NamespaceSelector, PodSelector: pods.PodSelector}
}

func isEmpty(s *metav1.LabelSelector) bool {
	return len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

func adminSources(r *model.ClusterPolicy_Rule) []v1alpha1.AdminNetworkPolicyIngressPeer {
	var out []v1alpha1.AdminNetworkPolicyIngressPeer
	for _, q := range r.GetPeers() {
		var peer v1alpha1.AdminNetworkPolicyIngressPeer
		peer.Namespaces, peer.Pods = adminPods(q.GetPods())
		out = append(out, peer)
	}
	return out
}

func network[T ~string](m *model.ClusterPolicy_Peer) []T {
	if n, ok := m.GetPeer().(*model.ClusterPolicy_Peer_Network); ok {
		return []T{T(n.Network)}
	}
	return nil
}

func domain[T ~string](m *model.ClusterPolicy_Peer) []T {
	if d, ok := m.GetPeer().(*model.ClusterPolicy_Peer_DomainName); ok {
		return []T{T(d.DomainName)}
	}
	return nil
}

// portKind returns the form of a message's port in Kubernetes.
type portKind int

const (
	portImpossible portKind = iota // nothing has it
	portUnknown                    // of no protocol that is known
	portName
	portNumbers // one or more
)

// portOf reads a port of a message. One without a number is every port of its
// protocol.
func portOf(m *model.ClusterPolicy_Port) (kind portKind, first, last int32) {
	_, named := m.GetPort().(*model.ClusterPolicy_Port_Name)
	first, last = signed(m.GetNumber()), signed(max(m.GetEndPort(), m.GetNumber()))
	switch {
	case m == nil || m.GetInvalid() || named && m.GetEndPort() != 0:
		return portImpossible, 0, 0
	case named:
		return portName, 0, 0
	case !isTransport(m.GetProtocol()):
		return portUnknown, 0, 0
	case m.GetPort() == nil && m.GetEndPort() == 0:
		return portNumbers, 1, 65535
	case first < 1 || last < first || m.GetEndPort() != 0 && m.GetEndPort() < m.GetNumber():
		return portImpossible, 0, 0
	}
	return portNumbers, first, last
}

func isTransport(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_TCP || p == model.Protocol_PROTOCOL_UDP || p == model.Protocol_PROTOCOL_SCTP
}

// adminPorts returns nil for every port, and a list, which may be empty, for some. 0 is
// a port that nothing has.
func adminPorts(r *model.ClusterPolicy_Rule) *[]v1alpha1.AdminNetworkPolicyPort {
	if r.GetAnyPort() {
		return nil
	}
	out := []v1alpha1.AdminNetworkPolicyPort{}
	for _, m := range r.GetPorts() {
		var p v1alpha1.AdminNetworkPolicyPort
		switch kind, first, last := portOf(m); {
		case kind == portName:
			p.NamedPort = new(m.GetName())
		case kind == portUnknown:
			p.PortNumber = &v1alpha1.Port{Protocol: corev1.Protocol("protocol " + strconv.Itoa(int(m.GetProtocol()))), Port: 1}
		case kind == portNumbers && first != last:
			p.PortRange = &v1alpha1.PortRange{Protocol: protocol(m.GetProtocol()), Start: first, End: last}
		default:
			p.PortNumber = &v1alpha1.Port{Protocol: protocol(m.GetProtocol()), Port: first}
			if !isTransport(m.GetProtocol()) { // of what is impossible only
				p.PortNumber.Protocol = corev1.ProtocolTCP
			}
		}
		out = append(out, p)
	}
	return &out
}

// protocols returns none for every port. A protocol without a field is not known; a
// range that starts at 0 is one that nothing has.
func protocols(r *model.ClusterPolicy_Rule) []v1alpha2.ClusterNetworkPolicyProtocol {
	if r.GetAnyPort() {
		return nil
	}
	var out []v1alpha2.ClusterNetworkPolicyProtocol
	for _, m := range r.GetPorts() {
		var p v1alpha2.ClusterNetworkPolicyProtocol
		switch kind, first, last := portOf(m); {
		case kind == portUnknown:
		case kind == portName && m.GetName() != "":
			p.DestinationNamedPort = m.GetName()
		case kind == portNumbers && first == last:
			setPort(&p, m.GetProtocol(), &v1alpha2.Port{Number: first})
		default:
			setPort(&p, m.GetProtocol(), &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: first, End: last}})
		}
		out = append(out, p)
	}
	if out == nil {
		return []v1alpha2.ClusterNetworkPolicyProtocol{{}} // an empty list would be every port
	}
	return out
}

func setPort(p *v1alpha2.ClusterNetworkPolicyProtocol, proto model.Protocol, port *v1alpha2.Port) {
	switch proto {
	case model.Protocol_PROTOCOL_UDP:
		p.UDP = &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
	case model.Protocol_PROTOCOL_SCTP:
		p.SCTP = &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
	default: // and of what is impossible any
		p.TCP = &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
	}
}
