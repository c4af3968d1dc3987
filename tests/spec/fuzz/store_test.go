package fuzz

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// Two pods that exist in addition to what the fuzzer writes.
var residents = []proto.Message{
	&model.Namespace{Name: "shop"},
	&model.Pod{Namespace: "shop", Name: "web", Labels: []*model.Label{{Key: "app", Value: "web"}}, Ips: []string{"10.0.0.1", "fd00::1"},
		Phase: model.Pod_PHASE_RUNNING, NodeName: node, NodeIps: []string{nodeAddr},
		NamedPorts: []*model.Pod_NamedPort{{Name: "http", Protocol: model.Protocol_PROTOCOL_TCP, Port: 80}}},
	&model.Pod{Namespace: "shop", Name: "db", Labels: []*model.Label{{Key: "app", Value: "db"}}, Ips: []string{"10.0.0.2", "fd00::2"},
		Phase: model.Pod_PHASE_RUNNING, NodeName: node, NodeIps: []string{nodeAddr},
		NamedPorts: []*model.Pod_NamedPort{{Name: "sql", Protocol: model.Protocol_PROTOCOL_TCP, Port: 5432}}},
}

// entry is a message as the store has it.
func entry(t testing.TB, m proto.Message) model.Entry {
	t.Helper()
	id, err := model.IDOf(m)
	if err != nil {
		t.Fatal(err)
	}
	value, err := model.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return model.Entry{Key: model.Key(model.DefaultPrefix, id), Value: value}
}

// policyOf is a policy for shop/web with one ingress and one egress rule.
func policyOf(r *model.NetworkPolicy_Rule) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true, IsolatesEgress: true,
		PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: "web"}}},
		Ingress:     []*model.NetworkPolicy_Rule{r}, Egress: []*model.NetworkPolicy_Rule{r}}
}

// clusterPolicyOf is a policy of the admin tier for every pod, with one ingress and one
// egress rule.
func clusterPolicyOf(r *model.ClusterPolicy_Rule) *model.ClusterPolicy {
	return &model.ClusterPolicy{Kind: model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY, Name: "c", Tier: model.ClusterPolicy_TIER_ADMIN,
		Priority: 10, Subject: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}},
		Ingress: []*model.ClusterPolicy_Rule{r}, Egress: []*model.ClusterPolicy_Rule{r}}
}

// FuzzStoreEntries puts two arbitrary entries into a store with two pods; datasync, the plugin and
// a recorder follow. The verdicts never permit more than the oracle does for the objects that are
// in force, even if values have content that no event source writes.
func FuzzStoreEntries(f *testing.F) {
	named := &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Name{Name: "sql"}}
	for _, r := range []*model.NetworkPolicy_Rule{
		{},
		{Peers: []*model.NetworkPolicy_Peer{{}}},
		{Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{}}}, Ports: []*model.NetworkPolicy_Port{named}},
		{Peers: []*model.NetworkPolicy_Peer{{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: []string{"10.0.0.2/32"}}}}},
		{Ports: []*model.NetworkPolicy_Port{{Invalid: true}}},
		{Ports: []*model.NetworkPolicy_Port{{Protocol: 9, Port: &model.NetworkPolicy_Port_Number{Number: 1 << 16}}}},
	} {
		a, b := entry(f, policyOf(r)), entry(f, residents[0])
		f.Add(a.Key, a.Value, b.Key, b.Value)
	}
	peers := []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}}}}}
	for _, r := range []*model.ClusterPolicy_Rule{
		{Action: model.ClusterPolicy_ACTION_DENY, Peers: peers, AnyPort: true},
		{Action: model.ClusterPolicy_ACTION_PASS, Peers: peers, Ports: []*model.ClusterPolicy_Port{{Port: &model.ClusterPolicy_Port_Name{Name: "sql"}}}},
		{Action: model.ClusterPolicy_ACTION_ALLOW, Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Network{Network: "10.0.0.0/8"}}}, AnyPort: true},
		{Action: 7, Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: &model.LabelSelector{}}}}},
		{},
	} {
		a, b := entry(f, clusterPolicyOf(r)), entry(f, &model.Node{Name: "n9", Addresses: []string{"192.0.2.9"}})
		f.Add(a.Key, a.Value, b.Key, b.Value)
	}
	third := entry(f, &model.Pod{Namespace: "other", Name: "new", Ips: []string{"10.0.0.3", "x", "::ffff:10.0.0.4"}, NodeName: node, HostNetwork: false})
	f.Add(third.Key, third.Value, "/sluice/k8s/pod/shop", []byte{0xff})
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte) {
		var entries []model.Entry
		for _, m := range residents {
			entries = append(entries, entry(t, m))
		}
		for _, e := range []model.Entry{{Key: key1, Value: value1}, {Key: key2, Value: value2}} {
			if e.Value == nil {
				e.Value = []byte{}
			}
			entries = append(entries, e)
		}
		w, problems := follow(t, entries)
		changes, err := w.Next(t.Context())
		if err != nil || !changes.Resync {
			t.Fatalf("%+v, %v", changes, err)
		}
		for _, p := range *problems {
			if text := p.Error(); p.Reason == "" || len(text) > 4000 {
				t.Errorf("a problem has %d bytes: %.200q", len(text), text)
			}
		}
		changes = lastOfEach(changes)
		state := kubeState(changes.Deltas)
		if otherNodes(changes.Deltas) || contested(state) {
			return
		}
		r := newRooms(t)
		r.apply(changes)
		neverMoreOpen(t, state, r.recorder, false)
	})
}

// lastOfEach keeps the last delta of an object: a real store has a key once.
func lastOfEach(c model.Changes) model.Changes {
	last := map[model.ID]int{}
	for i, d := range c.Deltas {
		last[d.ID] = i
	}
	out := model.Changes{Resync: true}
	for i, d := range c.Deltas {
		if last[d.ID] == i {
			out.Deltas = append(out.Deltas, d)
		}
	}
	return out
}

// otherNodes reports whether a pod says something else of its node than the others:
// what one node's agent enforces is not the whole verdict then.
func otherNodes(deltas []model.Delta) bool {
	for _, d := range deltas {
		if p, ok := d.Value.(*model.Pod); ok && (p.NodeName != node || len(p.NodeIps) != 1 || p.NodeIps[0] != nodeAddr) {
			return true
		}
	}
	return false
}
