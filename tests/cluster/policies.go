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

// policy draws a NetworkPolicy.
func (b builder) policy(namespace, name string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	np.Spec.PodSelector = *b.selector(podLabels)
	np.Spec.PolicyTypes = pick(b, [][]networkingv1.PolicyType{
		{networkingv1.PolicyTypeIngress},
		{networkingv1.PolicyTypeEgress},
		{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		nil,
	}, "policyTypes")
	for range b.Below(4, "ingress rules") {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: b.peers(), Ports: b.ports()})
	}
	for range b.Below(4, "egress rules") {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: b.peers(), Ports: b.ports()})
	}
	return np
}

func (b builder) peers() []networkingv1.NetworkPolicyPeer {
	if b.one(5, "any peer") {
		return nil
	}
	out := []networkingv1.NetworkPolicyPeer{}
	for range b.Below(4, "peers") {
		out = append(out, b.peer())
	}
	return out
}

func (b builder) peer() networkingv1.NetworkPolicyPeer {
	kinds := 4
	if b.cfg.Odd {
		kinds = 7
	}
	var p networkingv1.NetworkPolicyPeer
	switch b.Below(kinds, "kind of peer") {
	case 0:
		p.PodSelector = b.selector(podLabels)
	case 1:
		p.NamespaceSelector = b.selector(namespaceKeys)
	case 2:
		p.NamespaceSelector, p.PodSelector = b.selector(namespaceKeys), b.selector(podLabels)
	case 3:
		p.IPBlock = b.block()
	case 4: // no field at all
	case 5:
		p.IPBlock, p.PodSelector = b.block(), b.selector(podLabels)
	case 6:
		odd := pick(b, oddBlocks, "odd block")
		p.IPBlock = odd.DeepCopy()
	}
	return p
}

// block draws a block whose excepts are strict parts of it.
func (b builder) block() *networkingv1.IPBlock {
	texts := blocks4
	if b.cfg.IPv6 && b.one(3, "IPv6 block") {
		texts = blocks6
	}
	cidr := netip.MustParsePrefix(pick(b, texts, "block"))
	out := &networkingv1.IPBlock{CIDR: cidr.String()}
	for range b.Below(3, "excepts") {
		inside := addr4(b.Below(b.pool(), "address in except"))
		if cidr.Addr().Is6() {
			inside = addr6(b.Below(b.pool(), "address in except"))
		}
		if !cidr.Contains(inside) {
			inside = cidr.Addr()
		}
		longer := cidr.Addr().BitLen() - cidr.Bits()
		if longer == 0 {
			break
		}
		except, err := inside.Prefix(cidr.Bits() + 1 + b.Below(longer, "length of except"))
		if err == nil {
			out.Except = append(out.Except, except.String())
		}
	}
	return out
}

func (b builder) ports() []networkingv1.NetworkPolicyPort {
	if b.one(3, "any port") {
		return nil
	}
	out := []networkingv1.NetworkPolicyPort{}
	for range b.Below(4, "ports") {
		out = append(out, b.port())
	}
	return out
}

func (b builder) port() networkingv1.NetworkPolicyPort {
	var p networkingv1.NetworkPolicyPort
	if b.one(2, "port has protocol") {
		protocol := pick(b, protocols, "protocol")
		p.Protocol = &protocol
	}
	kinds := 5
	if b.cfg.Odd {
		kinds = 6
	}
	switch b.Below(kinds, "kind of port") {
	case 0:
		p.Port = number(pick(b, portNumbers, "port"))
	case 1: // every port of the protocol
	case 2, 3: // few of the names are those of a port that nothing else permits
		p.Port = name(pick(b, portNames, "port name"))
	case 4:
		first := pick(b, portNumbers, "first port")
		last := first + pick(b, []int32{0, 1, 30, 8000, 65535 - first}, "length of range")
		p.Port, p.EndPort = number(first), &last
	case 5:
		b.oddPort(&p)
	}
	return p
}

// oddPort makes a port that matches nothing.
func (b builder) oddPort(p *networkingv1.NetworkPolicyPort) {
	end := int32(79)
	switch b.Below(5, "odd port") {
	case 0: // inverted
		p.Port, p.EndPort = number(80), &end
	case 1: // a range that starts at a name
		end = 9999
		p.Port, p.EndPort = name("http"), &end
	case 2: // a range without a start
		p.EndPort = &end
	case 3:
		p.Port = pick(b, []*intstr.IntOrString{number(0), number(65536), name("")}, "number out of range")
	case 4:
		protocol := pick(b, []corev1.Protocol{"ICMP", "tcp", ""}, "unknown protocol")
		p.Protocol = &protocol
	}
}

func number(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

func name(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// selector draws a label selector over a universe.
func (b builder) selector(keys []labelKey) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range b.Below(3, "requirements") {
		k := pick(b, keys, "key")
		value := pick(b, k.values, "value")
		switch b.Below(6, "operator") {
		case 0, 1:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[k.key] = value
		case 2:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpIn, value, pick(b, k.values, "value")))
		case 3:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpNotIn, value))
		case 4:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpExists))
		case 5:
			s.MatchExpressions = append(s.MatchExpressions, requirement(k.key, metav1.LabelSelectorOpDoesNotExist))
		}
	}
	if b.cfg.Odd && b.one(24, "invalid selector") {
		s.MatchExpressions = append(s.MatchExpressions, pick(b, []metav1.LabelSelectorRequirement{
			requirement("app", "Like", "web"), requirement("app", metav1.LabelSelectorOpIn), requirement("app", metav1.LabelSelectorOpNotIn),
			requirement("app", metav1.LabelSelectorOpExists, "web"),
		}, "invalid requirement"))
	}
	return s
}

func requirement(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
}
