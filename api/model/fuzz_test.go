package model_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// FuzzDecode: a value that is read is that of its key, is within the limits, and
// the canonical bytes of what was read are a fixed point.
func FuzzDecode(f *testing.F) {
	for _, m := range []proto.Message{
		&model.Namespace{Name: "shop", Labels: []*model.Label{{Key: "team", Value: "a"}}},
		&model.Pod{Namespace: "shop", Name: "web-0", Ips: []string{"10.0.0.1"}, NamedPorts: []*model.Pod_NamedPort{{Name: "http", Protocol: 1, Port: 80}}},
		&model.NetworkPolicy{Namespace: "shop", Name: "web", PodSelector: &model.LabelSelector{}, IsolatesIngress: true,
			Ingress: []*model.NetworkPolicy_Rule{{Peers: []*model.NetworkPolicy_Peer{{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}}}}},
		&model.Node{Name: "n1", Labels: []*model.Label{{Key: "zone", Value: "a"}}, Addresses: []string{"192.168.0.1"}},
		&model.ClusterPolicy{Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Name: "guard", Tier: model.ClusterPolicy_TIER_ADMIN, Priority: 7,
			Subject: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}},
			Egress: []*model.ClusterPolicy_Rule{{Name: "out", Action: model.ClusterPolicy_ACTION_PASS,
				Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Network{Network: "10.0.0.0/8"}}, {Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: "*.example.org"}}, {}},
				Ports: []*model.ClusterPolicy_Port{{Protocol: 1, Port: &model.ClusterPolicy_Port_Number{Number: 1}, EndPort: 2}, {Port: &model.ClusterPolicy_Port_Name{Name: "web"}}, {Invalid: true}}}}},
	} {
		id, err := model.IDOf(m)
		if err != nil {
			f.Fatal(err)
		}
		b, err := model.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(model.Key("", id), b)
	}
	f.Add("/k8s/pod/shop/a/b", []byte{})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		id, err := model.ParseKey("", key)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		m, err := model.Decode(id, value)
		if err != nil {
			return
		}
		if got, err := model.IDOf(m); err != nil || model.Key("", got) != key || len(got.Name) > model.MaxName {
			t.Fatalf("the value of %q is of %v, %v", key, got, err)
		}
		first, err := model.Encode(m)
		if err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		again, err := model.Decode(id, first)
		if err != nil {
			t.Fatalf("written and not read: %v", err)
		}
		if second, err := model.Encode(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("canonical bytes %x become %x, %v", first, second, err)
		}
		switch p := m.(type) {
		case *model.NetworkPolicy:
			for _, i := range p.OverFamilies() {
				if p.Egress[i].Families() == 0 {
					t.Errorf("egress rule %d is over a limit with nothing", i)
				}
			}
		case *model.ClusterPolicy:
			for _, i := range p.OverFamilies() {
				if p.Egress[i].Families() == 0 {
					t.Errorf("egress rule %d is over a limit with nothing", i)
				}
			}
		}
	})
}
