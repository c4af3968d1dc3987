package api_test

import (
	"encoding"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

func TestPortRange(t *testing.T) {
	if api.Ports(0, 65535) != api.AnyPort {
		t.Error("0-65535 is not canonical")
	}
	for _, tc := range []struct {
		r    api.PortRange
		in   []uint16
		out  []uint16
		text string
	}{
		{api.AnyPort, []uint16{0, 1, 65535}, nil, "any"},
		{api.Port(80), []uint16{80}, []uint16{0, 79, 81}, "80"},
		{api.Ports(8000, 8010), []uint16{8000, 8005, 8010}, []uint16{7999, 8011}, "8000-8010"},
		{api.Ports(1, 65535), []uint16{1, 65535}, []uint16{0}, "1-65535"},
	} {
		for _, p := range tc.in {
			if !tc.r.Contains(p) {
				t.Errorf("%v does not contain %d", tc.r, p)
			}
		}
		for _, p := range tc.out {
			if tc.r.Contains(p) {
				t.Errorf("%v contains %d", tc.r, p)
			}
		}
		if tc.r.String() != tc.text {
			t.Errorf("got %q, want %q", tc.r, tc.text)
		}
	}
}

// TestTextFormsAreReadBack checks that every word of the API survives its own text form and
// that other texts are refused with a message that names them.
func TestTextFormsAreReadBack(t *testing.T) {
	for _, v := range []interface {
		encoding.TextMarshaler
		fmt.Stringer
	}{
		api.PodID{Namespace: "shop", Name: "web-0"}, api.NetworkPolicy, api.Ingress, api.Egress, api.Deny, api.Permit,
		api.AnyProtocol, api.ICMP, api.TCP, api.UDP, api.ICMPv6, api.SCTP, api.Protocol(47),
		api.AnyPort, api.Port(80), api.Ports(1, 2), api.NodeSet, api.NewSetID("x"),
	} {
		b, err := v.MarshalText()
		if err != nil || string(b) != v.String() {
			t.Errorf("%v: text is %q, %v", v, b, err)
		}
		got, err := reparse(v, b)
		if err != nil || got != v.(any) {
			t.Errorf("%T %q became %v, %v", v, b, got, err)
		}
		if got, err := reparse(v, []byte("a/b/c-")); err == nil {
			t.Errorf("%T: nonsense became %v", v, got)
		}
	}
}

func reparse(like any, text []byte) (any, error) {
	switch like.(type) {
	case api.PodID:
		return unmarshal[api.PodID](text)
	case api.PolicyKind:
		return unmarshal[api.PolicyKind](text)
	case api.Direction:
		return unmarshal[api.Direction](text)
	case api.Action:
		return unmarshal[api.Action](text)
	case api.Protocol:
		return unmarshal[api.Protocol](text)
	case api.PortRange:
		return unmarshal[api.PortRange](text)
	case api.SetID:
		return unmarshal[api.SetID](text)
	}
	return nil, errors.New("not a text form")
}

func unmarshal[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text []byte) (any, error) {
	var v T
	err := P(&v).UnmarshalText(text)
	return v, err
}

func TestSetIDIsDerivedFromMeaning(t *testing.T) {
	again := string([]byte("app=web"))
	if api.NewSetID("app=web") != api.NewSetID(again) || api.NewSetID("app=web") == api.NewSetID("app=db") {
		t.Error("equal meanings must give equal IDs, others different ones")
	}
	if id := api.NewSetID(""); id < 256 {
		t.Errorf("%v is reserved", id)
	}
}

func TestProblemNamesObjectAndField(t *testing.T) {
	p := api.Problem{Source: "shop.yaml", Object: "NetworkPolicy shop/web", Field: "spec.podSelector", Reason: "is missing"}
	if d := cmp.Diff("shop.yaml: NetworkPolicy shop/web: spec.podSelector: is missing", p.Error()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("is missing", api.Problem{Reason: "is missing"}.Error()); d != "" {
		t.Error(d)
	}
}

func TestPodIDAndPolicyIDCompareAndPrint(t *testing.T) {
	a := api.PolicyID{Namespace: "shop", Name: "web"}
	b := api.PolicyID{Namespace: "shop", Name: "x"}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("policies are not ordered by name")
	}
	if a.String() != "NetworkPolicy shop/web" {
		t.Error(a)
	}
	o := api.Origin{Policy: a, Direction: api.Ingress, Rule: 2}
	for want, got := range map[string]string{
		"NetworkPolicy shop/web ingress rule 2":           o.String(),
		"NetworkPolicy shop/web isolates ingress":         api.Origin{Policy: a, Rule: api.IsolationRule}.String(),
		"NetworkPolicy shop/web ingress exempts the node": api.Origin{Policy: a, Rule: api.NodeRule}.String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
