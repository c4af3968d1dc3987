package suggest

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// end is an end of a flow that decides, with what its rules could name: the other end
// and the port.
type end struct {
	oracle    *oracle.Oracle
	verdict   oracle.Verdict
	direction api.Direction
}

// edit is a change of a rule; the verb comes before the rule.
func (e end) edit(kind Kind, rule api.Origin, verb string) Change {
	return Change{Kind: kind, Direction: e.direction, Origins: []api.Origin{rule}, Text: verb + " " + ruleTexts(rule)}
}

// port is the port of a rule that matches the flow, nil for a protocol without.
func (e end) port() *networkingv1.NetworkPolicyPort {
	flow := e.verdict.Flow
	if !flow.Protocol.HasPorts() {
		return nil
	}
	protocol, number := corev1.Protocol(strings.ToUpper(flow.Protocol.String())), intstr.FromInt32(int32(flow.DstPort))
	return &networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
}

// portText names the port that a rule must have, which for a protocol without
// ports can only be the absence of ports.
func (e end) portText() string {
	flow := e.verdict.Flow
	if !flow.Protocol.HasPorts() {
		return "every port and protocol"
	}
	return fmt.Sprintf("port %d/%s", flow.DstPort, flow.Protocol)
}

// peer is a peer that matches the other end in a policy of a namespace: by its
// labels where it is a pod, else by its address. It is nil when neither can be.
func (e end) peer(namespace string) *networkingv1.NetworkPolicyPeer {
	pod := e.otherPod()
	if pod == nil {
		return blockOf(e.otherAddr())
	}
	p := &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: lasting(pod.Labels)}}
	if pod.Namespace != namespace {
		p.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pod.Namespace}}
	}
	if !selects(p.PodSelector, pod.Labels) || !e.inNamespaces(p.NamespaceSelector, namespace, pod.Namespace) {
		return blockOf(e.otherAddr()) // its namespace, or a label, is nothing that a selector can name
	}
	return p
}

// adminPeer is a peer of an admin rule that matches the other end, which on
// ingress only a pod can be. It is nil when there can be none.
func (e end) adminPeer() *networkingv1.NetworkPolicyPeer {
	p := e.peer("") // of no namespace, so that it names one
	if p != nil && p.IPBlock != nil && e.direction == api.Ingress {
		return nil
	}
	return p
}

// inNamespaces reports whether a selector of namespaces selects one. Without a selector
// that is the policy's own.
func (e end) inNamespaces(sel *metav1.LabelSelector, own, name string) bool {
	if sel == nil {
		return name == own
	}
	set, known := e.oracle.NamespaceLabels(name)
	return known && selects(sel, set)
}

func blockOf(a netip.Addr) *networkingv1.NetworkPolicyPeer {
	if !a.IsValid() {
		return nil
	}
	return &networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}}
}

// text names a peer that peer returned.
func (e end) text(p *networkingv1.NetworkPolicyPeer) string {
	word := "to "
	if e.direction == api.Ingress {
		word = "from "
	}
	if p.IPBlock != nil {
		return word + e.otherAddr().String()
	}
	what := labels.Set(p.PodSelector.MatchLabels).String()
	if what == "" {
		what = "every pod"
	}
	return word + what + " in namespace " + e.otherPod().Namespace
}

func (e end) otherAddr() netip.Addr {
	if e.direction == api.Ingress {
		return e.verdict.Flow.Src
	}
	return e.verdict.Flow.Dst
}

// otherPod returns the pod at the other end, if it is one that selectors see.
func (e end) otherPod() *corev1.Pod {
	other, verdict := e.verdict.Dst, e.verdict.Ingress
	if e.direction == api.Ingress {
		other, verdict = e.verdict.Src, e.verdict.Egress
	}
	if !verdict.Applies {
		return nil
	}
	return e.oracle.Pod(other.Pod)
}
