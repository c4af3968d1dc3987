package cluster

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// blocks cover all, some or none of the pods, the nodes and the world.
var (
	blocks4 = []string{"10.1.0.0/16", "10.1.0.0/24", "10.1.1.0/28", "10.1.2.0/23", "10.0.0.0/8", "0.0.0.0/0",
		"203.0.113.0/24", "192.168.0.0/24", "192.168.0.2/32"}
	blocks6   = []string{"fd00:1::/32", "fd00:1:1::/64", "::/0", "2001:db8::/32", "fd00:9::/64"}
	oddBlocks = []networkingv1.IPBlock{
		{CIDR: "10.1.0.77/24"}, {CIDR: "010.001.0.0/16"}, {CIDR: "::ffff:10.1.1.0/120"},
		{CIDR: "10.1.0.0/33"}, {CIDR: "10.1.0.1"}, {CIDR: ""},
		{CIDR: "10.1.0.0/16", Except: []string{"10.1.0.0/16"}},
		{CIDR: "10.1.0.0/16", Except: []string{"10.2.0.0/24"}},
		{CIDR: "10.1.0.0/16", Except: []string{"10.1.1.5/24", "nonsense"}},
		{CIDR: "fd00:1::/32", Except: []string{"10.1.0.0/16"}},
	}
)

// policyDrawer draws policies of namespaces and what happens to them.
type policyDrawer struct{ draws }

// policy draws a NetworkPolicy.
func (d policyDrawer) policy(namespace, name string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	np.Annotations = d.mode()
	np.Spec.PodSelector = *d.selector(podLabels)
	np.Spec.PolicyTypes = pick(d, [][]networkingv1.PolicyType{
		{networkingv1.PolicyTypeIngress},
		{networkingv1.PolicyTypeEgress},
		{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		nil,
	}, "policyTypes")
	for range d.Below(4, "ingress rules") {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: d.peers(), Ports: d.ports()})
	}
	for range d.Below(4, "egress rules") {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: d.peers(), Ports: d.ports()})
	}
	return np
}

func (d policyDrawer) peers() []networkingv1.NetworkPolicyPeer {
	if d.one(5, "any peer") {
		return nil
	}
	out := []networkingv1.NetworkPolicyPeer{}
	for range d.Below(4, "peers") {
		out = append(out, d.peer())
	}
	return out
}

func (d policyDrawer) peer() networkingv1.NetworkPolicyPeer {
	kinds := 4
	if d.cfg.Odd {
		kinds = 7
	}
	var p networkingv1.NetworkPolicyPeer
	switch d.Below(kinds, "kind of peer") {
	case 0:
		p.PodSelector = d.selector(podLabels)
	case 1:
		p.NamespaceSelector = d.selector(namespaceKeys)
	case 2:
		p.NamespaceSelector, p.PodSelector = d.selector(namespaceKeys), d.selector(podLabels)
	case 3:
		p.IPBlock = d.block()
	case 4: // no field at all
	case 5:
		p.IPBlock, p.PodSelector = d.block(), d.selector(podLabels)
	case 6:
		odd := pick(d, oddBlocks, "odd block")
		p.IPBlock = odd.DeepCopy()
	}
	return p
}

// block draws a block whose excepts are strict parts of it.
func (d policyDrawer) block() *networkingv1.IPBlock {
	texts := blocks4
	if d.cfg.IPv6 && d.one(3, "IPv6 block") {
		texts = blocks6
	}
	cidr := netip.MustParsePrefix(pick(d, texts, "block"))
	out := &networkingv1.IPBlock{CIDR: cidr.String()}
	for range d.Below(3, "excepts") {
		inside := addr4(d.Below(d.pool(), "address in except"))
		if cidr.Addr().Is6() {
			inside = addr6(d.Below(d.pool(), "address in except"))
		}
		if !cidr.Contains(inside) {
			inside = cidr.Addr()
		}
		longer := cidr.Addr().BitLen() - cidr.Bits()
		if longer == 0 {
			break
		}
		except, err := inside.Prefix(cidr.Bits() + 1 + d.Below(longer, "length of except"))
		if err == nil {
			out.Except = append(out.Except, except.String())
		}
	}
	return out
}

func (d policyDrawer) ports() []networkingv1.NetworkPolicyPort {
	if d.one(3, "any port") {
		return nil
	}
	out := []networkingv1.NetworkPolicyPort{}
	for range d.Below(4, "ports") {
		out = append(out, d.port())
	}
	return out
}

func (d policyDrawer) port() networkingv1.NetworkPolicyPort {
	var p networkingv1.NetworkPolicyPort
	if d.one(2, "port has protocol") {
		protocol := pick(d, protocols, "protocol")
		p.Protocol = &protocol
	}
	kinds := 5
	if d.cfg.Odd {
		kinds = 6
	}
	switch d.Below(kinds, "kind of port") {
	case 0:
		p.Port = number(pick(d, portNumbers, "port"))
	case 1: // every port of the protocol
	case 2, 3: // few of the names are those of a port that nothing else permits
		p.Port = name(pick(d, portNames, "port name"))
	case 4:
		first := pick(d, portNumbers, "first port")
		last := first + pick(d, []int32{0, 1, 30, 8000, 65535 - first}, "length of range")
		p.Port, p.EndPort = number(first), &last
	case 5:
		d.oddPort(&p)
	}
	return p
}

// oddPort makes a port that matches nothing.
func (d policyDrawer) oddPort(p *networkingv1.NetworkPolicyPort) {
	end := int32(79)
	switch d.Below(5, "odd port") {
	case 0: // inverted
		p.Port, p.EndPort = number(80), &end
	case 1: // a range that starts at a name
		end = 9999
		p.Port, p.EndPort = name("http"), &end
	case 2: // a range without a start
		p.EndPort = &end
	case 3:
		p.Port = pick(d, []*intstr.IntOrString{number(0), number(65536), name("")}, "number out of range")
	case 4:
		protocol := pick(d, []corev1.Protocol{"ICMP", "tcp", ""}, "unknown protocol")
		p.Protocol = &protocol
	}
}

func number(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

func name(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// selector draws a label selector over a universe.
func (d draws) selector(keys []labelKey) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range d.Below(3, "requirements") {
		k := pick(d, keys, "key")
		value := pick(d, k.values, "value")
		switch d.Below(6, "operator") {
		case 0, 1:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[k.key] = value
		case 2:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpIn, value, pick(d, k.values, "value")))
		case 3:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpNotIn, value))
		case 4:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpExists))
		case 5:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpDoesNotExist))
		}
	}
	if d.cfg.Odd && d.one(24, "invalid selector") {
		s.MatchExpressions = append(s.MatchExpressions, pick(d, []metav1.LabelSelectorRequirement{
			requirement("app", "Like", "web"), requirement("app", metav1.LabelSelectorOpIn), requirement("app", metav1.LabelSelectorOpNotIn),
			requirement("app", metav1.LabelSelectorOpExists, "web"),
		}, "invalid requirement"))
	}
	return s
}

func requirement(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
}
