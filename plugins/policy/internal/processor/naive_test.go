package processor_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// naive evaluates policies directly from the messages, pod by pod.
type naive struct {
	addrs      []netip.Addr // of the node, in addition to those in objects
	node       string
	pods       []*model.Pod
	namespaces map[string]map[string]string
	policies   []*model.NetworkPolicy
	cluster    []*model.ClusterPolicy
	nodes      []*model.Node
}

func newNaive(state map[model.ID]proto.Message, node string) *naive {
	n := &naive{node: node, namespaces: map[string]map[string]string{}}
	for _, m := range state {
		switch m := m.(type) {
		case *model.Pod:
			finished := m.Phase == model.Pod_PHASE_SUCCEEDED || m.Phase == model.Pod_PHASE_FAILED
			if !m.HostNetwork && !finished {
				n.pods = append(n.pods, m)
			}
		case *model.Namespace:
			l := toMap(m.Labels)
			l["kubernetes.io/metadata.name"] = m.Name
			n.namespaces[m.Name] = l
		case *model.NetworkPolicy:
			n.policies = append(n.policies, m)
		case *model.ClusterPolicy:
			n.cluster = append(n.cluster, m)
		case *model.Node:
			n.nodes = append(n.nodes, m)
		}
	}
	return n
}

func toMap(ls []*model.Label) map[string]string {
	m := map[string]string{}
	for _, l := range ls {
		m[l.Key] = l.Value
	}
	return m
}

// check compares every verdict of every local pod within a small universe.
func (n *naive) check(t tb, r *recorder) {
	t.Helper()
	want := map[api.PodID]*model.Pod{}
	nodes := map[netip.Addr]bool{}
	for _, p := range n.pods {
		if n.node == "" || p.NodeName == n.node {
			for _, ip := range p.NodeIps {
				nodes[netip.MustParseAddr(ip)] = true
			}
			if len(p.Ips) > 0 {
				want[api.PodID{Namespace: p.Namespace, Name: p.Name}] = p
			}
		}
	}
	for _, node := range n.nodes {
		if node.Name == n.node || n.node == "" && slices.ContainsFunc(n.pods, func(p *model.Pod) bool { return p.NodeName == node.Name }) {
			for _, ip := range node.Addresses {
				nodes[netip.MustParseAddr(ip)] = true
			}
		}
	}
	for _, a := range n.addrs {
		nodes[a.Unmap()] = true
	}
	if got := len(r.sets[api.NodeSet]); got != len(nodes) {
		t.Fatalf("%d node addresses, want %v", got, nodes)
	}
	for a := range nodes {
		if !r.sets[api.NodeSet][a] {
			t.Fatalf("%s is not in the set of node addresses", a)
		}
	}
	if got := slices.SortedFunc(maps.Keys(r.pods), api.PodID.Compare); !slices.Equal(got, slices.SortedFunc(maps.Keys(want), api.PodID.Compare)) {
		t.Fatalf("local pods: %v", got)
	}
	for id, p := range want {
		if got := r.pods[id].ips; len(got) != len(p.Ips) {
			t.Fatalf("%s has %v", id, got)
		}
		n.checkPod(t, r, id, p)
	}
}

func (n *naive) checkPod(t tb, r *recorder, id api.PodID, p *model.Pod) {
	t.Helper()
	for _, d := range []api.Direction{api.Ingress, api.Egress} {
		for _, ip := range append([]string{"8.8.8.8", "10.0.0.9", "fd00::9", "192.168.0.1", "192.168.0.2"}, someIPs...) {
			for _, proto := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP} {
				for _, port := range []uint16{80, 81, 82} {
					a := netip.MustParseAddr(ip)
					got, want := r.allows(id, d, a, proto, port), n.allAllow(p, d, a, proto, port)
					if got != want {
						t.Fatalf("%s %s %s %s/%d: got %t, Kubernetes says %t\n%s", id, d, ip, proto, port, got, want, r.describe())
					}
				}
			}
		}
	}
}

// allAllow evaluates a pod and those that share an address of the peer's family with it.
func (n *naive) allAllow(p *model.Pod, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	for _, q := range n.pods {
		if (q == p || shares(p, q, peer)) && !n.allows(q, d, peer, proto, port) {
			return false
		}
	}
	return true
}

// shares asks about the family of an address, if p has one of it.
func shares(p, q *model.Pod, like netip.Addr) bool {
	alike := slices.DeleteFunc(slices.Clone(p.Ips), func(ip string) bool { return netip.MustParseAddr(ip).Is4() != like.Is4() })
	if len(alike) == 0 {
		return overlap(p, q)
	}
	return slices.ContainsFunc(alike, func(ip string) bool { return slices.Contains(q.Ips, ip) })
}

func (n *naive) allows(p *model.Pod, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	if v := n.tier(model.ClusterPolicy_TIER_ADMIN, p, d, peer, proto, port); v == allowed || v == denied {
		return v == allowed
	}
	isolated := false
	for _, np := range n.policies {
		rules, isolates := np.Ingress, np.IsolatesIngress
		if d == api.Egress {
			rules, isolates = np.Egress, np.IsolatesEgress
		}
		if np.Namespace != p.Namespace || !isolates {
			continue
		}
		if !valid(np.PodSelector) { // it isolates whom it may select, and permits nothing
			isolated = true
			continue
		}
		if !selects(np.PodSelector, toMap(p.Labels)) {
			continue
		}
		isolated = true
		for _, r := range rules {
			if n.ruleAllows(np, r, p, d, peer, proto, port) {
				return true
			}
		}
	}
	return !isolated && n.tier(model.ClusterPolicy_TIER_BASELINE, p, d, peer, proto, port) != denied
}

// ruleAllows evaluates every view of the peer: as an address, and as every pod that has the
// address.
func (n *naive) ruleAllows(np *model.NetworkPolicy, r *model.NetworkPolicy_Rule, p *model.Pod, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	as := []*model.Pod{nil}
	for _, q := range n.pods {
		if slices.Contains(q.Ips, peer.String()) {
			as = append(as, q)
		}
	}
	for _, q := range as {
		dst := p
		if d == api.Egress {
			dst = q
		}
		if n.peerMatches(np, r.Peers, q, peer) && portMatches(r.Ports, dst, proto, port) {
			return true
		}
	}
	return false
}

func (n *naive) peerMatches(np *model.NetworkPolicy, peers []*model.NetworkPolicy_Peer, q *model.Pod, peer netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	for _, pe := range peers {
		switch {
		case pe.IpBlock != nil && pe.PodSelector == nil && pe.NamespaceSelector == nil:
			if inBlock(pe.IpBlock, peer) {
				return true
			}
		case pe.IpBlock != nil || q == nil || pe.PodSelector == nil && pe.NamespaceSelector == nil:
		default:
			nsOK := q.Namespace == np.Namespace
			if pe.NamespaceSelector != nil {
				l, known := n.namespaces[q.Namespace]
				nsOK = known && selects(pe.NamespaceSelector, l)
			}
			if nsOK && selects(pe.PodSelector, toMap(q.Labels)) {
				return true
			}
		}
	}
	return false
}

func inBlock(b *model.NetworkPolicy_IPBlock, a netip.Addr) bool {
	p, err := netip.ParsePrefix(b.Cidr)
	if err != nil || !p.Masked().Contains(a) {
		return false
	}
	for _, e := range b.Except {
		if netip.MustParsePrefix(e).Contains(a) {
			return false
		}
	}
	return true
}

func portMatches(ports []*model.NetworkPolicy_Port, dst *model.Pod, proto api.Protocol, port uint16) bool {
	if len(ports) == 0 {
		return true
	}
	for _, p := range ports {
		if p.Invalid || strings.ToLower(strings.TrimPrefix(p.Protocol.String(), "PROTOCOL_")) != proto.String() {
			continue
		}
		switch v := p.Port.(type) {
		case nil:
			return true
		case *model.NetworkPolicy_Port_Number:
			if p.EndPort != 0 && p.EndPort < v.Number {
				continue
			}
			if uint32(port) == v.Number || p.EndPort != 0 && uint32(port) > v.Number && uint32(port) <= p.EndPort {
				return true
			}
		case *model.NetworkPolicy_Port_Name:
			for _, np := range dst.GetNamedPorts() {
				if np.Name == v.Name && np.Protocol == p.Protocol && np.Port == uint32(port) {
					return true
				}
			}
		}
	}
	return false
}

func selects(s *model.LabelSelector, l map[string]string) bool {
	for _, kv := range s.GetMatchLabels() {
		if v, ok := l[kv.Key]; !ok || v != kv.Value {
			return false
		}
	}
	for _, r := range s.GetMatchExpressions() {
		v, ok := l[r.Key]
		in := ok && slices.Contains(r.Values, v)
		switch r.Operator {
		case model.LabelSelector_OPERATOR_IN:
			if !in {
				return false
			}
		case model.LabelSelector_OPERATOR_NOT_IN:
			if in {
				return false
			}
		case model.LabelSelector_OPERATOR_EXISTS:
			if !ok {
				return false
			}
		case model.LabelSelector_OPERATOR_DOES_NOT_EXIST:
			if ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}
