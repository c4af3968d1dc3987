package processor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// checkProblems compares the problems with the result of scanning every pod: named ports that match
// nothing, and addresses that pods share.
func (n *naive) checkProblems(t tb, problems []api.Problem) {
	t.Helper()
	var got, want []string
	for _, p := range n.localPods(n.isLocal) {
		for _, q := range n.pods {
			if p != q && overlap(p, q) {
				want = append(want, fmt.Sprintf("Pod %s/%s: pod %s/%s", p.Namespace, p.Name, q.Namespace, q.Name))
			}
		}
	}
	for _, p := range problems {
		if other, shared := strings.CutSuffix(p.Reason, " has one of its addresses, too: the policies of both apply, and a rule that permits either of them permits both"); shared {
			got = append(got, p.Object+": "+other)
			continue
		}
		got = append(got, fmt.Sprintf("%s %s %s", p.Object, p.Field, p.Reason[strings.Index(p.Reason, " has a ")+7:strings.Index(p.Reason, ": the port")]))
	}
	for _, np := range n.policies {
		subjects := n.subjects(np)
		if len(subjects) == 0 {
			continue
		}
		if np.IsolatesIngress {
			for i, r := range np.Ingress {
				want = append(want, nameless(np, "ingress", i, r, func(name *model.NetworkPolicy_Port) bool {
					return !slices.ContainsFunc(subjects, func(p *model.Pod) bool { return hasPort(p, name) })
				})...)
			}
		}
		if np.IsolatesEgress {
			for i, r := range np.Egress {
				want = append(want, nameless(np, "egress", i, r, func(name *model.NetworkPolicy_Port) bool { return n.unresolved(np, r, name) })...)
			}
		}
	}
	want = append(want, n.clusterNameless()...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("named ports that match nothing:\ngot  %q\nwant %q", got, want)
	}
}

// subjects returns the local pods with an address that a policy selects.
func (n *naive) subjects(np *model.NetworkPolicy) []*model.Pod {
	return n.localPods(func(p *model.Pod) bool {
		return p.Namespace == np.Namespace && valid(np.PodSelector) && selects(np.PodSelector, toMap(p.Labels))
	})
}

// localPods returns the wanted ones that have an address, with the pods of other nodes that share
// one.
func (n *naive) localPods(wanted func(*model.Pod) bool) (out []*model.Pod) {
	for _, p := range n.pods {
		if len(p.Ips) > 0 && wanted(p) && slices.ContainsFunc(n.pods, func(q *model.Pod) bool { return n.isLocal(q) && (p == q || overlap(p, q)) }) {
			out = append(out, p)
		}
	}
	return out
}

func (n *naive) isLocal(p *model.Pod) bool { return n.node == "" || p.NodeName == n.node }

func overlap(p, q *model.Pod) bool {
	return slices.ContainsFunc(p.Ips, func(ip string) bool { return slices.Contains(q.Ips, ip) })
}

// nameless lists the unresolved named ports of a rule, without duplicates.
func nameless(np *model.NetworkPolicy, d string, i int, r *model.NetworkPolicy_Rule, bad func(*model.NetworkPolicy_Port) bool) (out []string) {
	if len(r.Peers) > 0 && !slices.ContainsFunc(r.Peers, validPeer) {
		return nil
	}
	for _, port := range r.Ports {
		if port.Invalid || port.GetName() == "" || !bad(port) {
			continue
		}
		proto := strings.ToLower(strings.TrimPrefix(port.Protocol.String(), "PROTOCOL_"))
		out = append(out, fmt.Sprintf("NetworkPolicy %s/%s spec.%s[%d].ports %s port named %q", np.Namespace, np.Name, d, i, proto, port.GetName()))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unresolved reports whether no pod that an egress rule selects has the port, although the rule
// selects pods, addresses or everyone.
func (n *naive) unresolved(np *model.NetworkPolicy, r *model.NetworkPolicy_Rule, name *model.NetworkPolicy_Port) bool {
	concerned := len(r.Peers) == 0
	for _, pe := range r.Peers {
		concerned = concerned || validPeer(pe) && pe.IpBlock != nil
	}
	for _, p := range n.pods {
		named := len(r.Peers) == 0
		for _, pe := range r.Peers {
			switch {
			case !validPeer(pe):
			case pe.IpBlock != nil:
				named = named || slices.ContainsFunc(p.Ips, func(ip string) bool { return inBlock(pe.IpBlock, netip.MustParseAddr(ip)) })
			default:
				matches := n.peerMatches(np, []*model.NetworkPolicy_Peer{pe}, p, netip.Addr{})
				named, concerned = named || matches, concerned || matches
			}
		}
		if named && hasPort(p, name) {
			return false
		}
	}
	return concerned
}

func hasPort(p *model.Pod, name *model.NetworkPolicy_Port) bool {
	return slices.ContainsFunc(p.NamedPorts, func(np *model.Pod_NamedPort) bool {
		return np.Name == name.GetName() && np.Protocol == name.Protocol
	})
}

func valid(s *model.LabelSelector) bool {
	return !slices.ContainsFunc(s.GetMatchExpressions(), func(r *model.LabelSelector_Requirement) bool { return r.Operator == 0 })
}

func validPeer(p *model.NetworkPolicy_Peer) bool {
	if p.IpBlock != nil {
		_, err := netip.ParsePrefix(p.IpBlock.Cidr)
		return err == nil && p.PodSelector == nil && p.NamespaceSelector == nil
	}
	return (p.PodSelector != nil || p.NamespaceSelector != nil) && valid(p.PodSelector) && valid(p.NamespaceSelector)
}
