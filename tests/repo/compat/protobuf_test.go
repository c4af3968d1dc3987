package compat

import (
	"testing"

	legacy "github.com/golang/protobuf/proto" //nolint:staticcheck // SA1019: customers' programs use this module; this test proves that they can read our values
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

func TestProtobufModulesReadEachOther(t *testing.T) {
	want := &model.NetworkPolicy{
		Namespace: "shop", Name: "web", IsolatesIngress: true,
		PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: "web"}}},
		Ingress: []*model.NetworkPolicy_Rule{{
			Ports: []*model.NetworkPolicy_Port{{
				Protocol: model.Protocol_PROTOCOL_SCTP, Port: &model.NetworkPolicy_Port_Number{Number: 7777}, EndPort: 7780,
			}},
		}},
	}
	ours, err := model.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	var read model.NetworkPolicy
	if err := legacy.Unmarshal(ours, legacy.MessageV1(&read)); err != nil || !proto.Equal(want, &read) {
		t.Fatalf("the old module reads %v, %v", &read, err)
	}
	theirs, err := legacy.Marshal(legacy.MessageV1(want))
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.Decode(model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"}, theirs)
	if err != nil || !proto.Equal(want, got) {
		t.Fatalf("we read %v, %v", got, err)
	}
}
