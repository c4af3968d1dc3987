package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// policy converts a NetworkPolicy. It returns nil when it is not known whom the
// policy isolates. Whatever else is wrong fails closed:
// the isolation stays, and the peer or port that is wrong matches nothing.
func (f *findings) policy(np *networkingv1.NetworkPolicy) *model.NetworkPolicy {
	spec := field.NewPath("spec")
	selector := f.selector(&np.Spec.PodSelector, spec.Child("podSelector"))
	ingress, egress, ok := f.policyTypes(&np.Spec, spec.Child("policyTypes"))
	if !ok || slices.ContainsFunc(selector.MatchExpressions, isInvalid) {
		return nil
	}
	out := &model.NetworkPolicy{
		Namespace:       np.Namespace,
		Name:            np.Name,
		PodSelector:     selector,
		IsolatesIngress: ingress,
		IsolatesEgress:  egress,
		Ingress:         f.ingressRules(np.Spec.Ingress, spec.Child("ingress")),
		Egress:          f.egressRules(np.Spec.Egress, spec.Child("egress")),
	}
	// The rules of a direction that is not isolated have no effect. They are left
	// out, after mistakes in them were found.
	if !ingress {
		out.Ingress = nil
	}
	if !egress {
		out.Egress = nil
	}
	for _, i := range out.OverFamilies() {
		f.add(spec.Child("egress").Index(i), "%s", out.Egress[i].TooManyFamilies())
		out.Egress[i] = &model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{{}}}
	}
	return out
}

func isInvalid(r *model.LabelSelector_Requirement) bool {
	return r.Operator == model.LabelSelector_OPERATOR_UNSPECIFIED
}

// policyTypes returns the directions that are isolated, false when they are not
// known. Without types every policy isolates ingress, and those with egress rules
// isolate egress as well.
func (f *findings) policyTypes(spec *networkingv1.NetworkPolicySpec, path *field.Path) (ingress, egress, ok bool) {
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
			f.add(path.Index(i), "%s is not a policy type: want Ingress or Egress", quoted(string(t)))
			ok = false
		}
	}
	if ok && len(spec.PolicyTypes) > 2 {
		f.add(path, "has %d types: write each of Ingress and Egress at most once", len(spec.PolicyTypes))
	}
	return ingress, egress, ok
}

func (f *findings) ingressRules(rules []networkingv1.NetworkPolicyIngressRule, path *field.Path) []*model.NetworkPolicy_Rule {
	var out []*model.NetworkPolicy_Rule
	for i, r := range rules {
		out = append(out, f.rule(r.From, "from", r.Ports, path.Index(i)))
	}
	return out
}

func (f *findings) egressRules(rules []networkingv1.NetworkPolicyEgressRule, path *field.Path) []*model.NetworkPolicy_Rule {
	var out []*model.NetworkPolicy_Rule
	for i, r := range rules {
		out = append(out, f.rule(r.To, "to", r.Ports, path.Index(i)))
	}
	return out
}

// rule makes one peer of every peer and one port of every port, whatever is wrong
// with them: a list must not become empty, because an empty list matches all.
func (f *findings) rule(peers []networkingv1.NetworkPolicyPeer, name string, ports []networkingv1.NetworkPolicyPort, path *field.Path) *model.NetworkPolicy_Rule {
	out := &model.NetworkPolicy_Rule{}
	for i := range ports {
		out.Ports = append(out.Ports, f.port(&ports[i], path.Child("ports").Index(i)))
	}
	for i := range peers {
		out.Peers = append(out.Peers, f.peer(&peers[i], path.Child(name).Index(i)))
	}
	return out
}

// peer returns a peer with no field set, which matches nothing, for one that says
// nothing or contradicts itself.
func (f *findings) peer(p *networkingv1.NetworkPolicyPeer, path *field.Path) *model.NetworkPolicy_Peer {
	hasSelector := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock == nil && !hasSelector:
		f.add(path, "names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer")
		return &model.NetworkPolicy_Peer{}
	case p.IPBlock != nil && hasSelector:
		f.add(path, "has both an ipBlock and a selector: write two peers")
		return &model.NetworkPolicy_Peer{}
	case p.IPBlock != nil:
		return &model.NetworkPolicy_Peer{IpBlock: f.ipBlock(p.IPBlock, path.Child("ipBlock"))}
	}
	return &model.NetworkPolicy_Peer{
		PodSelector:       f.selector(p.PodSelector, path.Child("podSelector")),
		NamespaceSelector: f.selector(p.NamespaceSelector, path.Child("namespaceSelector")),
	}
}

// ipBlock returns nil for a block that is invalid in any part: without one of its
// exceptions it would match more than was meant.
func (f *findings) ipBlock(b *networkingv1.IPBlock, path *field.Path) *model.NetworkPolicy_IPBlock {
	if b.CIDR == "" {
		f.add(path.Child("cidr"), "is missing: write for example 10.0.0.0/8")
		return nil
	}
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		f.add(path.Child("cidr"), "%v", err)
		return nil
	}
	out, ok := &model.NetworkPolicy_IPBlock{Cidr: cidr.String()}, true
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		except, err := parseCIDR(text)
		switch {
		case err != nil:
			f.add(at, "%v", err)
			ok = false
		case !strictlyWithin(except, cidr):
			f.add(at, "%s is not a part of the cidr %s: the whole block matches nothing", except, cidr)
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

// port returns an invalid port, which matches nothing, for one that names
// something that does not exist.
func (f *findings) port(p *networkingv1.NetworkPolicyPort, path *field.Path) *model.NetworkPolicy_Port {
	protocol, ok := model.Protocol_PROTOCOL_TCP, true
	if p.Protocol != nil {
		protocol, ok = protocolOf(*p.Protocol)
		ok = ok && *p.Protocol != corev1.Protocol("")
	}
	out := &model.NetworkPolicy_Port{Protocol: protocol}
	switch {
	case !ok:
		f.add(path.Child("protocol"), "%s is not a protocol of a policy: want TCP, UDP or SCTP", quoted(string(*p.Protocol)))
	case p.Port == nil:
		ok = f.noEndPort(p, path, "a port")
	case p.Port.Type == intstr.Int:
		ok = f.portRange(p, path)
		out.Port = &model.NetworkPolicy_Port_Number{Number: uint32(p.Port.IntVal)}
	case len(validation.IsValidPortName(p.Port.StrVal)) > 0:
		f.add(path.Child("port"), "%s is not a port name: %s, or a number without quotes", quoted(p.Port.StrVal), wantPortName)
		ok = false
	default:
		ok = f.noEndPort(p, path, "a port that is a number")
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

func (f *findings) noEndPort(p *networkingv1.NetworkPolicyPort, path *field.Path, needs string) bool {
	if p.EndPort == nil {
		return true
	}
	f.add(path.Child("endPort"), "needs %s", needs)
	return false
}

func (f *findings) portRange(p *networkingv1.NetworkPolicyPort, path *field.Path) bool {
	switch first, end := p.Port.IntVal, p.EndPort; {
	case !isPort(first):
		f.add(path.Child("port"), "%d is not a port: want 1 to 65535", first)
	case end == nil:
		return true
	case !isPort(*end):
		f.add(path.Child("endPort"), "%d is not a port: want 1 to 65535", *end)
	case *end < first:
		f.add(path.Child("endPort"), "%d is below the port %d", *end, first)
	default:
		return true
	}
	return false
}
