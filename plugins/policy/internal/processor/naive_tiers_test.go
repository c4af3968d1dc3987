package processor_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// decision of a tier.
type decision int

const (
	undecided decision = iota
	allowed
	denied
	passed
)

// tier returns the decision of the cluster-scoped policies of a tier about a pod's traffic: the
// first rule that matches, in the order of priorities, names and kinds.
func (n *naive) tier(tier model.ClusterPolicy_Tier, p *model.Pod, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) decision {
	var policies []*model.ClusterPolicy
	for _, cp := range n.cluster {
		if cp.Tier == tier && n.inPods(subjectOf(cp), p) {
			policies = append(policies, cp)
		}
	}
	slices.SortFunc(policies, func(a, b *model.ClusterPolicy) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	for _, cp := range policies {
		rules := cp.Ingress
		if d == api.Egress {
			rules = cp.Egress
		}
		if !valid(cp.GetSubject().GetPods()) { // it denies everything, unless it only allows
			if slices.ContainsFunc(rules, func(r *model.ClusterPolicy_Rule) bool { return r.Action != model.ClusterPolicy_ACTION_ALLOW }) {
				return denied
			}
			continue
		}
		for _, r := range rules {
			if !n.clusterRuleMatches(r, p, d, peer, proto, port) {
				continue
			}
			switch {
			case riddle(r, d), r.Action != model.ClusterPolicy_ACTION_ALLOW && r.Action != model.ClusterPolicy_ACTION_PASS:
				return denied
			case r.Action == model.ClusterPolicy_ACTION_PASS && cp.Kind == model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY:
				return denied
			case r.Action == model.ClusterPolicy_ACTION_PASS:
				return passed
			}
			return allowed
		}
	}
	return undecided
}

// subjectOf returns the subject of a policy: all pods of its namespaces if only these can be read.
// All namespaces are too many for that.
func subjectOf(cp *model.ClusterPolicy) *model.ClusterPolicy_Pods {
	s := cp.GetSubject()
	if valid(s.GetPods()) || len(s.GetNamespaces().GetMatchLabels())+len(s.GetNamespaces().GetMatchExpressions()) == 0 {
		return s
	}
	return &model.ClusterPolicy_Pods{Namespaces: s.GetNamespaces(), Pods: &model.LabelSelector{}}
}

// riddle reports whether a rule that does not allow has an unknown part.
func riddle(r *model.ClusterPolicy_Rule, d api.Direction) bool {
	return r.Action != model.ClusterPolicy_ACTION_ALLOW && (len(r.Peers) == 0 ||
		slices.ContainsFunc(r.Peers, func(pe *model.ClusterPolicy_Peer) bool { return unknownPeer(pe, d) }))
}

func unknownPeer(pe *model.ClusterPolicy_Peer, d api.Direction) bool {
	if d == api.Ingress && !podPeer(pe) {
		return true
	}
	switch v := pe.Peer.(type) {
	case *model.ClusterPolicy_Peer_Pods:
		return !valid(v.Pods.Namespaces) || !valid(v.Pods.Pods)
	case *model.ClusterPolicy_Peer_Nodes:
		return !valid(v.Nodes)
	case *model.ClusterPolicy_Peer_Network:
		_, err := netip.ParsePrefix(v.Network)
		return err != nil
	}
	return true
}

// noNames reports whether a peer cannot have named ports.
func noNames(pe *model.ClusterPolicy_Peer) bool { return pe.Peer != nil && !podPeer(pe) }

func podPeer(pe *model.ClusterPolicy_Peer) bool {
	_, ok := pe.Peer.(*model.ClusterPolicy_Peer_Pods)
	return ok
}

// clusterRuleMatches evaluates, like ruleAllows, every view of the peer.
func (n *naive) clusterRuleMatches(r *model.ClusterPolicy_Rule, p *model.Pod, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	if riddle(r, d) {
		return true
	}
	as := []*model.Pod{nil}
	for _, q := range n.pods {
		if slices.Contains(q.Ips, peer.String()) {
			as = append(as, q)
		}
	}
	return slices.ContainsFunc(as, func(q *model.Pod) bool {
		dst := p
		if d == api.Egress {
			dst = q
		}
		return slices.ContainsFunc(r.Peers, func(pe *model.ClusterPolicy_Peer) bool { return n.isPeer(pe, d, q, peer) }) &&
			(r.AnyPort || slices.ContainsFunc(r.Ports, func(cp *model.ClusterPolicy_Port) bool { return clusterPortMatches(r, cp, dst, proto, port) }))
	})
}

func (n *naive) isPeer(pe *model.ClusterPolicy_Peer, d api.Direction, q *model.Pod, peer netip.Addr) bool {
	if unknownPeer(pe, d) {
		return false
	}
	switch v := pe.Peer.(type) {
	case *model.ClusterPolicy_Peer_Pods:
		return q != nil && n.inPods(v.Pods, q)
	case *model.ClusterPolicy_Peer_Nodes:
		return slices.ContainsFunc(n.nodes, func(node *model.Node) bool {
			return selects(v.Nodes, toMap(node.Labels)) && slices.Contains(node.Addresses, peer.String())
		})
	case *model.ClusterPolicy_Peer_Network:
		return netip.MustParsePrefix(v.Network).Contains(peer)
	}
	return false
}

func (n *naive) inPods(s *model.ClusterPolicy_Pods, p *model.Pod) bool {
	l, known := n.namespaces[p.Namespace]
	return known && s != nil && valid(s.Namespaces) && valid(s.Pods) && selects(s.Namespaces, l) && selects(s.Pods, toMap(p.Labels))
}

func clusterPortMatches(r *model.ClusterPolicy_Rule, cp *model.ClusterPolicy_Port, dst *model.Pod, proto api.Protocol, port uint16) bool {
	name, named := cp.Port.(*model.ClusterPolicy_Port_Name)
	switch {
	case cp.Invalid:
		return false
	case named:
		return !slices.ContainsFunc(r.Peers, noNames) &&
			slices.ContainsFunc(dst.GetNamedPorts(), func(np *model.Pod_NamedPort) bool {
				return np.Name == name.Name && protocolText(np.Protocol) == proto.String() && np.Port == uint32(port)
			})
	case protocolText(cp.Protocol) != proto.String():
		return false
	case cp.Port == nil:
		return true
	}
	return uint32(port) >= cp.GetNumber() && uint32(port) <= max(cp.GetNumber(), cp.EndPort)
}

func protocolText(p model.Protocol) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "PROTOCOL_"))
}

// clusterNameless lists the named ports of cluster-scoped policies that match nothing.
func (n *naive) clusterNameless() (want []string) {
	for _, cp := range n.cluster {
		subjects := n.localPods(func(p *model.Pod) bool { return n.inPods(cp.Subject, p) })
		if len(subjects) == 0 {
			continue
		}
		for i, r := range cp.Ingress {
			want = append(want, namelessOf(cp, api.Ingress, i, r, subjects)...)
		}
		for i, r := range cp.Egress {
			peers := slices.DeleteFunc(slices.Clone(n.pods), func(q *model.Pod) bool {
				return !slices.ContainsFunc(r.Peers, func(pe *model.ClusterPolicy_Peer) bool { return n.isPeer(pe, api.Egress, q, netip.Addr{}) })
			})
			want = append(want, namelessOf(cp, api.Egress, i, r, peers)...)
		}
	}
	return want
}

// namelessOf lists the named ports of a rule that none of some pods has.
func namelessOf(cp *model.ClusterPolicy, d api.Direction, i int, r *model.ClusterPolicy_Rule, pods []*model.Pod) (out []string) {
	if riddle(r, d) || slices.ContainsFunc(r.Peers, noNames) ||
		!slices.ContainsFunc(r.Peers, func(pe *model.ClusterPolicy_Peer) bool { return !unknownPeer(pe, d) }) || len(pods) == 0 {
		return nil
	}
	for _, port := range r.Ports {
		has := func(p *model.Pod) bool {
			return slices.ContainsFunc(p.NamedPorts, func(np *model.Pod_NamedPort) bool { return np.Name == port.GetName() })
		}
		if port.GetName() != "" && !port.Invalid && !slices.ContainsFunc(pods, has) {
			id, _ := model.IDOf(cp)
			list := "ports"
			if id.Kind == model.KindClusterNetworkPolicy {
				list = "protocols"
			}
			out = append(out, fmt.Sprintf("%s spec.%s[%d].%s port named %q", id, d, i, list, port.GetName()))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
