package oracle_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

// apply makes a change that an explanation of the flow offers. Of a change that
// may be made to one of several policies it makes the first.
func apply(s cluster.State, f api.Flow, v oracle.Verdict, c oracle.Change) cluster.State {
	out := cluster.State{Nodes: s.Nodes}
	for _, o := range s.Namespaces {
		out.Namespaces = append(out.Namespaces, o.DeepCopy())
	}
	for _, o := range s.Pods {
		out.Pods = append(out.Pods, o.DeepCopy())
	}
	for _, o := range s.Policies {
		out.Policies = append(out.Policies, o.DeepCopy())
	}
	switch c.Kind {
	case oracle.LabelPod:
		p := podOf(&out, c.Pod.String())
		relabel(&p.ObjectMeta, c)
	case oracle.LabelNamespace:
		relabel(&namespaceOf(&out, c.Namespace).ObjectMeta, c)
	case oracle.AddPort, oracle.AddPeer, oracle.AddRule:
		edit(policyOf(&out, c.Origins[0].Policy), f, c)
	case oracle.RemoveRules:
		for _, g := range slices.Backward(c.Origins) {
			remove(policyOf(&out, g.Policy), g)
		}
	case oracle.Isolate:
		types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if c.Direction == api.Egress {
			types[0] = networkingv1.PolicyTypeEgress
		}
		np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: types}}
		np.Namespace, np.Name = v.Direction(c.Direction).Subjects[0].Pod.Namespace, "isolate"
		out.Policies = append(out.Policies, np)
	}
	return out
}

func relabel(m *metav1.ObjectMeta, c oracle.Change) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, c.Set)
	for _, k := range c.Unset {
		delete(m.Labels, k)
	}
}

func policyOf(s *cluster.State, id api.PolicyID) *networkingv1.NetworkPolicy {
	i := slices.IndexFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool {
		return np.Namespace == id.Namespace && np.Name == id.Name
	})
	return s.Policies[i]
}

// edit adds exactly the flow to a rule, or as a rule.
func edit(np *networkingv1.NetworkPolicy, f api.Flow, c oracle.Change) {
	far := f.Src
	if c.Direction == api.Egress {
		far = f.Dst
	}
	peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(far, far.BitLen()).String()}}
	peers, ports := []networkingv1.NetworkPolicyPeer{peer}, []networkingv1.NetworkPolicyPort{}
	if f.Protocol.HasPorts() {
		protocol, number := corev1.Protocol(strings.ToUpper(f.Protocol.String())), intstr.FromInt32(int32(f.DstPort))
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number})
	}
	switch rule := c.Origins[0].Rule; {
	case c.Kind == oracle.AddRule && c.Direction == api.Ingress:
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	case c.Kind == oracle.AddRule:
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
	case c.Direction == api.Ingress:
		r := &np.Spec.Ingress[rule]
		r.From, r.Ports = extend(c.Kind, r.From, r.Ports, peers, ports)
	default:
		r := &np.Spec.Egress[rule]
		r.To, r.Ports = extend(c.Kind, r.To, r.Ports, peers, ports)
	}
}

func extend(kind oracle.ChangeKind, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
	morePeers []networkingv1.NetworkPolicyPeer, morePorts []networkingv1.NetworkPolicyPort,
) ([]networkingv1.NetworkPolicyPeer, []networkingv1.NetworkPolicyPort) {
	switch {
	case kind == oracle.AddPeer:
		return append(peers, morePeers...), ports
	case len(morePorts) == 0: // only a rule without ports matches
		return peers, nil
	}
	return peers, append(ports, morePorts...)
}

// remove deletes a rule. The types stay what they were: an API server has
// written the defaults down before somebody edits.
func remove(np *networkingv1.NetworkPolicy, g api.Origin) {
	if np.Spec.PolicyTypes == nil {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	if g.Direction == api.Ingress {
		np.Spec.Ingress = slices.Delete(np.Spec.Ingress, g.Rule, g.Rule+1)
		return
	}
	np.Spec.Egress = slices.Delete(np.Spec.Egress, g.Rule, g.Rule+1)
}
