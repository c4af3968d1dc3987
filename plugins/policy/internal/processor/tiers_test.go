package processor_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

var (
	somePods = rapid.Custom(func(t *rapid.T) *model.ClusterPolicy_Pods {
		s := &model.ClusterPolicy_Pods{Namespaces: someSelector.Draw(t, "namespaces"), Pods: &model.LabelSelector{}}
		if rapid.Bool().Draw(t, "pods") {
			s.Pods = someSelector.Draw(t, "pods")
		}
		return s
	})
	someClusterPeer = rapid.Custom(func(t *rapid.T) *model.ClusterPolicy_Peer {
		switch rapid.IntRange(0, 19).Draw(t, "peer") {
		case 0:
			return &model.ClusterPolicy_Peer{}
		case 1:
			return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: "example.org"}}
		case 2, 3, 4:
			return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: someSelector.Draw(t, "nodes")}}
		case 5, 6, 7:
			network := rapid.SampledFrom([]string{"10.0.0.0/24", "fd00::/64", "0.0.0.0/0", "192.168.0.1/32", "nonsense"}).Draw(t, "network")
			return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: network}}
		}
		return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Pods{Pods: somePods.Draw(t, "pods")}}
	})
	someClusterPort = rapid.Custom(func(t *rapid.T) *model.ClusterPolicy_Port {
		p := port(rapid.SampledFrom([]string{"tcp", "tcp/80", "tcp/80-81", "udp/81", "tcp/web", "tcp/dns"}).Draw(t, "port"))
		out := &model.ClusterPolicy_Port{Protocol: p.Protocol, EndPort: p.EndPort, Invalid: rapid.IntRange(0, 9).Draw(t, "invalid") == 0}
		switch v := p.Port.(type) {
		case *model.NetworkPolicy_Port_Number:
			out.Port = &model.ClusterPolicy_Port_Number{Number: v.Number}
		case *model.NetworkPolicy_Port_Name:
			out.Protocol, out.Port = 0, &model.ClusterPolicy_Port_Name{Name: v.Name}
		}
		return out
	})
	someClusterRules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *model.ClusterPolicy_Rule {
		r := &model.ClusterPolicy_Rule{
			Action: model.ClusterPolicy_Action(rapid.SampledFrom([]int{1, 1, 2, 2, 3, 3, 0}).Draw(t, "action")),
			Peers:  rapid.SliceOfN(someClusterPeer, 0, 3).Draw(t, "peers"),
		}
		if r.AnyPort = rapid.Bool().Draw(t, "any port"); !r.AnyPort {
			r.Ports = rapid.SliceOfN(someClusterPort, 1, 3).Draw(t, "ports")
		}
		return r
	}), 0, 3)
	someClusterPolicy = rapid.Custom(func(t *rapid.T) *model.ClusterPolicy {
		p := &model.ClusterPolicy{
			Name:     rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"),
			Kind:     model.ClusterPolicy_Kind(rapid.IntRange(1, 3).Draw(t, "kind")),
			Tier:     model.ClusterPolicy_Tier(rapid.IntRange(1, 2).Draw(t, "tier")),
			Priority: rapid.Uint32Range(0, 2).Draw(t, "priority"),
			Subject:  somePods.Draw(t, "subject"),
			Ingress:  someClusterRules.Draw(t, "ingress"),
			Egress:   someClusterRules.Draw(t, "egress"),
		}
		switch p.Kind {
		case model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY:
			p.Tier = model.ClusterPolicy_TIER_ADMIN
		case model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY:
			p.Name, p.Tier, p.Priority = "default", model.ClusterPolicy_TIER_BASELINE, 1001
		default:
		}
		return p
	})
	someNode = rapid.Custom(func(t *rapid.T) *model.Node {
		return &model.Node{
			Name: rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "name"), Labels: someLabels.Draw(t, "labels"),
			Addresses: slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(
				rapid.SampledFrom([]string{"192.168.0.1", "192.168.0.2", "10.0.0.3"}), 0, 2).Draw(t, "addresses")))),
		}
	})
)

// tier describes the policies of a tier that the sink received.
func (r *recorder) tier(tier api.Tier, list []*api.ContivPolicy, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) decision {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *api.ContivPolicy) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID.Name, b.ID.Name), a.ID.Compare(b.ID))
	})
	for _, p := range list {
		if p.Tier != tier {
			continue
		}
		for _, rule := range p.Rules(d) {
			if !r.matches(rule, peer, proto, port) {
				continue
			}
			return map[api.RuleAction]decision{api.RuleAllow: allowed, api.RuleDeny: denied, api.RulePass: passed}[rule.Action]
		}
	}
	return undecided
}

func TestProcessorIgnoresDeletedNamespaces(t *testing.T) {
	w := newWorld(t, processor.Options{Node: "n1"})
	pod := &model.Pod{Namespace: "a", Name: "u", Ips: []string{"10.0.0.1"}, NodeName: "n1"}
	all := &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}}
	policy := &model.ClusterPolicy{
		Name: "p", Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Tier: model.ClusterPolicy_TIER_ADMIN, Subject: all,
		Ingress: []*model.ClusterPolicy_Rule{{Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: all}}}}},
	}
	w.apply(pod, policy)
	id := api.PodID{Namespace: "a", Name: "u"}
	policies := func() int { return len(w.sink.pods[id].list) }
	if n := policies(); n != 0 {
		t.Errorf("%d policies before the namespace is known", n)
	}
	w.apply(ns("a", ""))
	if n := policies(); n != 1 {
		t.Errorf("%d policies, want that of the cluster", n)
	}
	w.remove(ns("a", ""))
	if n := policies(); n != 0 {
		t.Errorf("%d policies when the namespace is gone", n)
	}
}

func TestSetsAgreeWithSink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldWithin(t, n1, someQuota.Draw(t, "quota"))
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			randomStep(t, w)
			for id, members := range w.sink.sets {
				if got := w.proc.Members(id); len(got) != len(members) {
					t.Fatalf("set %s: %v, received %v", id, got, members)
				}
				for _, ip := range append([]string{"192.168.0.1", "192.168.0.2", "8.8.8.8"}, someIPs...) {
					if a := netip.MustParseAddr(ip); w.proc.Contains(id, a) != members[a] {
						t.Fatalf("set %s: %s: %t, received %v", id, a, !members[a], members)
					}
				}
			}
		}
	})
}
