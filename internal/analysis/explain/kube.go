package explain

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// State turns messages back into the Kubernetes objects that the oracle works
// on. The objects hold what policy needs and nothing else: the ports of a pod,
// for example, are those of one container without a name. Nil messages are left
// out.
//
// A policy that isolates neither direction has no effect, and there is no
// Kubernetes object that says so (without types a policy isolates); it is left
// out.
func State(namespaces []*model.Namespace, pods []*model.Pod, policies []*model.NetworkPolicy) oracle.State {
	var s oracle.State
	for _, m := range namespaces {
		if m != nil {
			s.Namespaces = append(s.Namespaces, Namespace(m))
		}
	}
	for _, m := range pods {
		if m != nil {
			s.Pods = append(s.Pods, Pod(m))
		}
	}
	for _, m := range policies {
		if m.GetIsolatesIngress() || m.GetIsolatesEgress() {
			s.Policies = append(s.Policies, NetworkPolicy(m))
		}
	}
	return s
}

// Namespace returns the Kubernetes object of a message.
func Namespace(m *model.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Labels: LabelSet(m.GetLabels())}}
}

// LabelSet returns labels by key.
func LabelSet(list []*model.Label) labels.Set {
	out := make(labels.Set, len(list))
	for _, l := range list {
		out[l.GetKey()] = l.GetValue()
	}
	return out
}

// Pod returns the Kubernetes object of a message.
func Pod(m *model.Pod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), Labels: LabelSet(m.GetLabels())}}
	if m.GetDeleting() {
		// The store does not say when. Only that there is a time matters.
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0).UTC()}
	}
	p.Spec.NodeName, p.Spec.HostNetwork = m.GetNodeName(), m.GetHostNetwork()
	var container corev1.Container
	for _, port := range m.GetNamedPorts() {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			Name: port.GetName(), ContainerPort: signed(port.GetPort()), Protocol: protocol(port.GetProtocol())})
	}
	p.Spec.Containers = []corev1.Container{container}
	p.Status.Phase = phase(m.GetPhase())
	for i, ip := range m.GetIps() {
		if i == 0 {
			p.Status.PodIP = ip
		}
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	for i, ip := range m.GetNodeIps() {
		if i == 0 {
			p.Status.HostIP = ip
		}
		p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: ip})
	}
	return p
}

func phase(p model.Pod_Phase) corev1.PodPhase {
	switch p {
	case model.Pod_PHASE_PENDING:
		return corev1.PodPending
	case model.Pod_PHASE_RUNNING:
		return corev1.PodRunning
	case model.Pod_PHASE_SUCCEEDED:
		return corev1.PodSucceeded
	case model.Pod_PHASE_FAILED:
		return corev1.PodFailed
	case model.Pod_PHASE_UNSPECIFIED:
		return ""
	default:
		return corev1.PodUnknown
	}
}

// signed keeps numbers beyond the range of ports beyond it: those that do not fit
// become negative.
func signed(n uint32) int32 { return int32(n) }

// protocol returns the name of a protocol. One that this version does not know
// gets a name that Kubernetes does not have.
func protocol(p model.Protocol) corev1.Protocol {
	switch p {
	case model.Protocol_PROTOCOL_UNSPECIFIED, model.Protocol_PROTOCOL_TCP:
		return corev1.ProtocolTCP
	case model.Protocol_PROTOCOL_UDP:
		return corev1.ProtocolUDP
	case model.Protocol_PROTOCOL_SCTP:
		return corev1.ProtocolSCTP
	default:
		return corev1.Protocol("protocol " + strconv.Itoa(int(p)))
	}
}

// NetworkPolicy returns the Kubernetes object of a message that isolates a
// direction.
func NetworkPolicy(m *model.NetworkPolicy) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), Annotations: modeOf(m)}}
	if sel := Selector(m.GetPodSelector()); sel != nil {
		np.Spec.PodSelector = *sel
	}
	if m.GetIsolatesIngress() {
		np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if m.GetIsolatesEgress() {
		np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	for _, r := range m.GetIngress() {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers(r), Ports: ports(r)})
	}
	for _, r := range m.GetEgress() {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers(r), Ports: ports(r)})
	}
	return np
}

// modeOf returns the annotation of the mode of a policy.
func modeOf(m interface{ GetAudit() bool }) map[string]string {
	if !m.GetAudit() {
		return nil
	}
	return map[string]string{oracle.ModeAnnotation: "audit"}
}

// peers returns one peer for every peer. One without a field, or with fields that
// contradict each other, is invalid in both worlds.
func peers(r *model.NetworkPolicy_Rule) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, p := range r.GetPeers() {
		peer := networkingv1.NetworkPolicyPeer{
			PodSelector:       Selector(p.GetPodSelector()),
			NamespaceSelector: Selector(p.GetNamespaceSelector()),
		}
		if b := p.GetIpBlock(); b != nil {
			peer.IPBlock = &networkingv1.IPBlock{CIDR: b.GetCidr(), Except: b.GetExcept()}
		}
		out = append(out, peer)
	}
	return out
}

// ports returns one port for every port. 0 is a port that no flow has and that
// the oracle calls invalid.
func ports(r *model.NetworkPolicy_Rule) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, p := range r.GetPorts() {
		proto := protocol(p.GetProtocol())
		port := networkingv1.NetworkPolicyPort{Protocol: &proto}
		switch n := p.GetPort().(type) {
		case *model.NetworkPolicy_Port_Number:
			port.Port = new(intstr.FromInt32(signed(n.Number)))
		case *model.NetworkPolicy_Port_Name:
			port.Port = new(intstr.FromString(n.Name))
		}
		if end := p.GetEndPort(); end != 0 {
			port.EndPort = new(signed(end))
		}
		if p.GetInvalid() {
			port.Port = new(intstr.FromInt32(0))
		}
		out = append(out, port)
	}
	return out
}

// Selector returns nil for nil: a peer without one of its selectors means
// something else than one with an empty selector.
func Selector(m *model.LabelSelector) *metav1.LabelSelector {
	if m == nil {
		return nil
	}
	out := &metav1.LabelSelector{}
	for _, l := range m.GetMatchLabels() {
		if _, twice := out.MatchLabels[l.GetKey()]; twice {
			// A map would lose one of the two requirements.
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: l.GetKey(), Operator: metav1.LabelSelectorOpIn, Values: []string{l.GetValue()}})
			continue
		}
		metav1.AddLabelToSelector(out, l.GetKey(), l.GetValue())
	}
	for _, r := range m.GetMatchExpressions() {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.GetKey(), Operator: operator(r.GetOperator()), Values: r.GetValues()})
	}
	return out
}

// operator returns a name that Kubernetes does not have for an operator that is
// unspecified or unknown, which makes the whole selector invalid.
func operator(o model.LabelSelector_Operator) metav1.LabelSelectorOperator {
	switch o {
	case model.LabelSelector_OPERATOR_IN:
		return metav1.LabelSelectorOpIn
	case model.LabelSelector_OPERATOR_NOT_IN:
		return metav1.LabelSelectorOpNotIn
	case model.LabelSelector_OPERATOR_EXISTS:
		return metav1.LabelSelectorOpExists
	case model.LabelSelector_OPERATOR_DOES_NOT_EXIST:
		return metav1.LabelSelectorOpDoesNotExist
	case model.LabelSelector_OPERATOR_UNSPECIFIED:
		return "(invalid)"
	default:
		return metav1.LabelSelectorOperator("operator " + strconv.Itoa(int(o)))
	}
}
