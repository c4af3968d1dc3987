package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
)

// openings returns, for every subject that denies, the changes that could make it
// allow.
func (o *Oracle) openings(v Verdict) [][]Change {
	var needs [][]Change
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		for _, s := range dv.Subjects {
			if s.Allowed {
				continue
			}
			f := opening{oracle: o, verdict: v, direction: d}
			if s.Rule != nil {
				needs = append(needs, f.tier(dv, s))
				continue
			}
			needs = append(needs, f.isolation(dv, s))
		}
	}
	return needs
}

// isolation looks for what would open a direction of a subject that NetworkPolicies
// isolate.
func (f opening) isolation(dv DirectionVerdict, s SubjectResult) []Change {
	var out []Change
	for _, pe := range dv.Policies {
		if pe.Subject == s.Pod {
			out = append(out, f.policy(pe)...)
		}
	}
	return append(out, f.newRule(dv, s.Pod)...)
}

// opening looks for what would open one direction of a verdict.
type opening struct {
	oracle    *Oracle
	verdict   Verdict
	direction api.Direction
}

// policy looks at the rules of a policy of which one side failed.
func (f opening) policy(pe PolicyEval) []Change {
	var out []Change
	np := f.oracle.policy(pe.Policy)
	rules := rulesOf(np, f.direction)
	for _, re := range pe.Rules {
		if re.failures() != 1 {
			continue
		}
		origin := api.Origin{Policy: pe.Policy, Direction: f.direction, Rule: re.Index}
		if re.PeerMatched {
			out = append(out, f.port(origin, len(rules[re.Index].ports)))
			continue
		}
		out = append(out, f.labels(np.Namespace, origin, rules[re.Index].peers)...)
		out = append(out, f.excepts(origin, rules[re.Index].peers)...)
		if peer := f.peer(np.Namespace); peer != nil {
			c := f.edit(AddPeer, origin, fmt.Sprintf("add %q to", f.text(peer)))
			c.Peer = peer
			out = append(out, c)
		}
	}
	return out
}

// edit is a change of a rule; the verb comes before the rule.
func (f opening) edit(kind ChangeKind, origin api.Origin, verb string) Change {
	return Change{Kind: kind, Direction: f.direction, Origins: []api.Origin{origin}, Text: verb + " " + originText(origin)}
}

// port is the change of a rule whose peers match. No port of a rule can name a
// protocol without ports, only a rule without ports matches it.
func (f opening) port(origin api.Origin, has int) Change {
	if port := f.flowPort(); port != nil {
		c := f.edit(AddPort, origin, fmt.Sprintf("add %q to", f.portText()))
		c.Port = port
		return c
	}
	c := f.edit(OpenPorts, origin, "remove the ports of")
	for i := range has {
		c.Terms = append(c.Terms, i)
	}
	return c
}

// flowPort is the port of a rule that matches the flow, nil for a protocol without.
func (f opening) flowPort() *networkingv1.NetworkPolicyPort {
	flow := f.verdict.Flow
	if !flow.Protocol.HasPorts() {
		return nil
	}
	protocol, number := corev1.Protocol(strings.ToUpper(flow.Protocol.String())), intstr.FromInt32(int32(flow.DstPort))
	return &networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
}

// portText names the port that a rule must have, which for a protocol without
// ports can only be the absence of ports.
func (f opening) portText() string {
	if !f.verdict.Flow.Protocol.HasPorts() {
		return "every port and protocol"
	}
	return "port " + flowPort(f.verdict.Flow).String()
}

// newRule is a rule for the flow, in the policy that selects the fewest pods.
func (f opening) newRule(dv DirectionVerdict, subject api.PodID) []Change {
	var best *networkingv1.NetworkPolicy
	for _, pe := range dv.Policies {
		if pe.Subject != subject {
			continue
		}
		if np := f.oracle.policy(pe.Policy); best == nil || breadth(np) < breadth(best) {
			best = np
		}
	}
	peer := f.peer(best.Namespace)
	if peer == nil {
		return nil
	}
	origin := api.Origin{Policy: policyID(best), Direction: f.direction, Rule: api.IsolationRule}
	return []Change{{Kind: AddRule, Direction: f.direction, Origins: []api.Origin{origin}, Peer: peer, Port: f.flowPort(),
		Text: fmt.Sprintf("add the rule \"%s, %s\" to %s of %s", f.text(peer), f.portText(), f.direction, policyName(origin.Policy))}}
}

// peer is a peer that matches the other end in a policy of a namespace: by its
// labels where it is a pod, else by its address. It is nil when neither can be.
func (f opening) peer(namespace string) *networkingv1.NetworkPolicyPeer {
	r := f.remote()
	if r == nil {
		return blockOf(f.remoteAddr())
	}
	p := &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: lasting(r.obj.Labels)}}
	if r.id.Namespace != namespace {
		p.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.id.Namespace}}
	}
	if e := (evaluation{oracle: f.oracle}); !e.matchesPeer(namespace, *p, remote{pod: r}).ok {
		return blockOf(f.remoteAddr()) // its namespace, or a label, is nothing that a selector can name
	}
	return p
}

func blockOf(a netip.Addr) *networkingv1.NetworkPolicyPeer {
	if !a.IsValid() {
		return nil
	}
	return &networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}}
}

// text names a peer that peer returned.
func (f opening) text(p *networkingv1.NetworkPolicyPeer) string {
	if p.IPBlock != nil {
		return preposition(f.direction) + " " + f.remoteAddr().String()
	}
	what := labels.Set(p.PodSelector.MatchLabels).String()
	if what == "" {
		what = "every pod"
	}
	return preposition(f.direction) + " " + what + " in namespace " + f.remote().id.Namespace
}

func (f opening) remoteEnd() Endpoint {
	if f.direction == api.Ingress {
		return f.verdict.Src
	}
	return f.verdict.Dst
}

func (f opening) remoteAddr() netip.Addr {
	if f.direction == api.Ingress {
		return f.verdict.Flow.Src
	}
	return f.verdict.Flow.Dst
}

// remote returns the pod at the other end, if it is one that selectors see.
func (f opening) remote() *pod {
	p := f.oracle.pod(f.remoteEnd().Pod)
	if p == nil || p.hidden() != "" {
		return nil
	}
	return p
}

// excepts looks for blocks that would match if they had fewer excepts.
func (f opening) excepts(origin api.Origin, peers []networkingv1.NetworkPolicyPeer) []Change {
	addr := f.remoteAddr()
	var out []Change
	for i, p := range peers {
		if p.IPBlock == nil || p.PodSelector != nil || p.NamespaceSelector != nil {
			continue
		}
		b, err := parseBlock(p.IPBlock)
		if err != nil || !b.cidr.Contains(addr) {
			continue
		}
		var holes []string
		for j, e := range b.except {
			if text := p.IPBlock.Except[j]; e.Contains(addr) && !slices.Contains(holes, text) {
				holes = append(holes, text)
			}
		}
		if holes == nil {
			continue
		}
		c := f.edit(RemoveExcept, origin, fmt.Sprintf("remove except %s of %s from", strings.Join(holes, ", "), p.IPBlock.CIDR))
		c.Terms, c.Except = []int{i}, holes
		out = append(out, c)
	}
	return out
}
