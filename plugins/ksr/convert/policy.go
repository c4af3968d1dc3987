package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
)

// convertPolicy converts a NetworkPolicy. It returns nil if it is unknown which pods the policy
// isolates. All other errors fail closed: the isolation stays, and an invalid peer or port matches
// nothing.
func convertPolicy(np *networkingv1.NetworkPolicy, at place) *model.NetworkPolicy {
	spec := at.child("spec")
	selector := readSelector(&np.Spec.PodSelector, spec.child("podSelector"))
	ingress, egress, ok := readPolicyTypes(&np.Spec, spec.child("policyTypes"))
	if !ok || slices.ContainsFunc(selector.MatchExpressions, isInvalid) {
		return nil
	}
	out := &model.NetworkPolicy{
		Namespace:       np.Namespace,
		Name:            np.Name,
		PodSelector:     selector,
		IsolatesIngress: ingress,
		IsolatesEgress:  egress,
		Ingress:         readIngress(np.Spec.Ingress, spec.child("ingress")),
		Egress:          readEgress(np.Spec.Egress, spec.child("egress")),
		Audit:           readAudit(np.Annotations, at),
	}
	// The rules of a direction that is not isolated have no effect. They are dropped after
	// validation.
	if !ingress {
		out.Ingress = nil
	}
	if !egress {
		out.Egress = nil
	}
	for _, i := range out.OverFamilies() {
		spec.child("egress").index(i).errorf("%s", out.Egress[i].TooManyFamilies())
		out.Egress[i] = &model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{{}}}
	}
	return out
}

func isInvalid(r *model.LabelSelector_Requirement) bool {
	return r.Operator == model.LabelSelector_OPERATOR_UNSPECIFIED
}

// readPolicyTypes returns the isolated directions, or false if they are unknown. Without types
// every policy isolates ingress, and policies with egress rules isolate egress as well.
func readPolicyTypes(spec *networkingv1.NetworkPolicySpec, at place) (ingress, egress, ok bool) {
	if len(spec.PolicyTypes) == 0 {
		return true, len(spec.Egress) > 0, true
	}
	ok = true
	for i, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			at.index(i).errorf("%s is not a policy type: want Ingress or Egress", model.Quoted(string(t)))
			ok = false
		}
	}
	if ok && len(spec.PolicyTypes) > 2 {
		at.errorf("has %d types: write each of Ingress and Egress at most once", len(spec.PolicyTypes))
	}
	return ingress, egress, ok
}

func readIngress(rules []networkingv1.NetworkPolicyIngressRule, at place) []*model.NetworkPolicy_Rule {
	var out []*model.NetworkPolicy_Rule
	for i, r := range rules {
		out = append(out, readRule(r.From, "from", r.Ports, at.index(i)))
	}
	return out
}

func readEgress(rules []networkingv1.NetworkPolicyEgressRule, at place) []*model.NetworkPolicy_Rule {
	var out []*model.NetworkPolicy_Rule
	for i, r := range rules {
		out = append(out, readRule(r.To, "to", r.Ports, at.index(i)))
	}
	return out
}

// readRule converts every peer to one peer and every port to one port, even invalid ones: a list
// must not become empty, because an empty list matches everything.
func readRule(peers []networkingv1.NetworkPolicyPeer, name string, ports []networkingv1.NetworkPolicyPort, at place) *model.NetworkPolicy_Rule {
	out := &model.NetworkPolicy_Rule{}
	for i := range ports {
		out.Ports = append(out.Ports, readPort(&ports[i], at.child("ports").index(i)))
	}
	for i := range peers {
		out.Peers = append(out.Peers, readPeer(&peers[i], at.child(name).index(i)))
	}
	return out
}

// readPeer returns a peer without fields, which matches nothing, for an empty or contradictory
// peer.
func readPeer(p *networkingv1.NetworkPolicyPeer, at place) *model.NetworkPolicy_Peer {
	hasSelector := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock == nil && !hasSelector:
		at.errorf("names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer")
		return &model.NetworkPolicy_Peer{}
	case p.IPBlock != nil && hasSelector:
		at.errorf("has both an ipBlock and a selector: write two peers")
		return &model.NetworkPolicy_Peer{}
	case p.IPBlock != nil:
		return &model.NetworkPolicy_Peer{IpBlock: readBlock(p.IPBlock, at.child("ipBlock"))}
	}
	return &model.NetworkPolicy_Peer{
		PodSelector:       readSelector(p.PodSelector, at.child("podSelector")),
		NamespaceSelector: readSelector(p.NamespaceSelector, at.child("namespaceSelector")),
	}
}

// readBlock returns nil for a block that is invalid in any part: without one of its exceptions it
// would match too much.
func readBlock(b *networkingv1.IPBlock, at place) *model.NetworkPolicy_IPBlock {
	if b.CIDR == "" {
		at.child("cidr").errorf("is missing: write for example 10.0.0.0/8")
		return nil
	}
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		at.child("cidr").errorf("%v", err)
		return nil
	}
	out, ok := &model.NetworkPolicy_IPBlock{Cidr: cidr.String()}, true
	for i, text := range b.Except {
		at := at.child("except").index(i)
		except, err := parseCIDR(text)
		switch {
		case err != nil:
			at.errorf("%v", err)
			ok = false
		case !strictlyWithin(except, cidr):
			at.errorf("%s is not a part of the cidr %s: the whole block matches nothing", except, cidr)
			ok = false
		default:
			out.Except = append(out.Except, except.String())
		}
	}
	if !ok {
		return nil
	}
	slices.Sort(out.Except)
	out.Except = slices.Compact(out.Except)
	return out
}

// readPort returns an invalid port, which matches nothing, if the port cannot exist.
func readPort(p *networkingv1.NetworkPolicyPort, at place) *model.NetworkPolicy_Port {
	protocol, ok := model.Protocol_PROTOCOL_TCP, true
	if p.Protocol != nil {
		protocol, ok = protocolOf(*p.Protocol)
		ok = ok && *p.Protocol != corev1.Protocol("")
	}
	out := &model.NetworkPolicy_Port{Protocol: protocol}
	switch {
	case !ok:
		at.child("protocol").errorf("%s is not a protocol of a policy: want TCP, UDP or SCTP", model.Quoted(string(*p.Protocol)))
	case p.Port == nil:
		ok = noEndPort(p, at, "a port")
	case p.Port.Type == intstr.Int:
		ok = validRange(p, at)
		out.Port = &model.NetworkPolicy_Port_Number{Number: uint32(p.Port.IntVal)}
	case len(validation.IsValidPortName(p.Port.StrVal)) > 0:
		at.child("port").errorf("%s is not a port name: %s, or a number without quotes", model.Quoted(p.Port.StrVal), wantPortName)
		ok = false
	default:
		ok = noEndPort(p, at, "a port that is a number")
		out.Port = &model.NetworkPolicy_Port_Name{Name: p.Port.StrVal}
	}
	if !ok {
		return &model.NetworkPolicy_Port{Protocol: protocol, Invalid: true}
	}
	if p.EndPort != nil {
		out.EndPort = uint32(*p.EndPort)
	}
	return out
}

func noEndPort(p *networkingv1.NetworkPolicyPort, at place, needs string) bool {
	if p.EndPort == nil {
		return true
	}
	at.child("endPort").errorf("needs %s", needs)
	return false
}

func validRange(p *networkingv1.NetworkPolicyPort, at place) bool {
	switch first, end := p.Port.IntVal, p.EndPort; {
	case !isPort(first):
		at.child("port").errorf("%d is not a port: want 1 to 65535", first)
	case end == nil:
		return true
	case !isPort(*end):
		at.child("endPort").errorf("%d is not a port: want 1 to 65535", *end)
	case *end < first:
		at.child("endPort").errorf("%d is below the port %d", *end, first)
	default:
		return true
	}
	return false
}
