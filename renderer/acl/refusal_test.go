package acl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// natFeatures is an excerpt of the feature order of VPP 25.10 with all its plugins.
var natFeatures = map[string][]string{
	"ip4-unicast": {"cnat-input-ip4", "acl-plugin-in-ip4-fa", "nat-pre-in2out", "nat-pre-out2in", "nat44-ei-in2out", "nat44-ei-out2in", "cnat-snat-ip4", "ip4-lookup"},
	"ip4-output":  {"nat-pre-in2out-output", "nat44-ed-in2out-output", "acl-plugin-out-ip4-fa", "nat44-ei-in2out-output", "cnat-output-ip4", "interface-output"},
	"ip6-unicast": {"cnat-input-ip6", "cnat-snat-ip6", "acl-plugin-in-ip6-fa", "nat66-in2out", "nat66-out2in", "ip6-lookup"},
	"ip6-output":  {"acl-plugin-out-ip6-fa", "cnat-output-ip6", "interface-output"},
}

func TestNATOrderHidingPodsIsRefused(t *testing.T) {
	pods, uplink := pod("open").String(), "uplink0"
	for _, tt := range []struct {
		name, on, node, arc string
		refused             bool
	}{
		{"NAT is loaded and nowhere on", "", "", "", false},
		{"the uplink translates ahead of its ACLs", uplink, "nat-pre-in2out-output", "ip4-output", true},
		{"the uplink translates behind its ACLs", uplink, "nat44-ei-in2out-output", "ip4-output", false},
		{"the uplink translates what comes back", uplink, "nat-pre-out2in", "ip4-unicast", false},
		{"a pod's source is translated when it enters", pods, "nat-pre-in2out", "ip4-unicast", true},
		{"a pod's source is translated when it enters, IPv6", pods, "nat66-in2out", "ip6-unicast", true},
		{"services of a pod are translated when it enters", pods, "cnat-input-ip4", "ip4-unicast", false},
		{"what a pod gets is translated back", pods, "cnat-output-ip4", "ip4-output", false},
		{"an interface of nobody", "local0", "nat-pre-in2out", "ip4-unicast", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSubjectOver(t, vswitch.New(vswitch.Options{Features: natFeatures}), nil, false, shopPods...)
			t.Cleanup(func() { _ = s.Close() })
			feature := func(suffix string) {
				t.Helper()
				if tt.on != "" {
					s.cli(t, "set interface feature "+strings.Join([]string{tt.on, tt.node, "arc", tt.arc}, " ")+suffix)
				}
			}
			feature("")
			err := try(t, s.Renderer(), true, shop)
			if errors.Is(err, sluiceacl.ErrNATOrder) != tt.refused || err != nil && !tt.refused {
				t.Fatalf("commit: %v, want it to be refused: %t", err, tt.refused)
			}
			if tt.refused && (!strings.Contains(err.Error(), tt.on) || !strings.Contains(err.Error(), tt.node)) {
				t.Errorf("%v does not name %s and %s", err, tt.on, tt.node)
			}
			commit(t, s.Renderer(), false, func(*renderer.Changes) { feature(" disable") })
			s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit) // it was enforced before, as far as possible
			s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
			if n := s.changes(func() { commit(t, s.Renderer(), false, nothing) }); n != 0 {
				t.Errorf("%d calls change something afterwards, want none", n)
			}
		})
	}
}

func TestNATOrderIsIgnoredWithoutGlobalTable(t *testing.T) {
	s := newSubjectOver(t, vswitch.New(vswitch.Options{Features: natFeatures}), nil, false, shopPods...)
	t.Cleanup(func() { _ = s.Close() })
	s.cli(t, "set interface feature uplink0 nat-pre-in2out-output arc ip4-output")
	commit(t, s.Renderer(), true, closedShop)
	if err := try(t, s.Renderer(), false, shop); !errors.Is(err, sluiceacl.ErrNATOrder) {
		t.Errorf("with such rules: %v", err)
	}
	commit(t, s.Renderer(), true, closedShop)
}
