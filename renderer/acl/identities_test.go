package acl_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	_ "github.com/sluice-net/sluice/renderer/renderertest"
	vpptag "github.com/sluice-net/sluice/renderer/vpp"
)

// TestPodIdentitiesMatchModel compares with a simple model: independently of history, an
// interface belongs to the pod with its tag, in the incarnation that the state knows.
func TestPodIdentitiesMatchModel(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::3")}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(ips), 0, 2, func(a netip.Addr) netip.Addr { return a })
	uids := rapid.SampledFrom([]string{"", "u1", "u2"})
	ids := []api.PodID{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}, {Namespace: "ns", Name: strings.Repeat("long", 20)}}
	rapid.Check(t, func(t *rapid.T) {
		var l sluiceacl.PodIdentities
		model := map[api.PodID]sluiceacl.PodIdentity{}
		var made []vpptag.Made
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			before := maps.Clone(model)
			all := rapid.IntRange(0, 3).Draw(t, "all") == 0
			if all {
				clear(model)
			}
			said := map[api.PodID]*sluiceacl.PodIdentity{}
			for _, id := range ids {
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					said[id] = &sluiceacl.PodIdentity{UID: uids.Draw(t, "uid"), IPs: some.Draw(t, "ips")}
					model[id] = *said[id]
				case 1:
					said[id] = nil
					delete(model, id)
				}
			}
			changed := l.Identify(said, all)
			for id, now := range model {
				if was, known := before[id]; (!known || fmt.Sprint(was) != fmt.Sprint(now)) && !changed {
					t.Fatalf("%s is %v after %v, and nothing is to be looked at", id, now, was)
				}
			}
			if rapid.Bool().Draw(t, "made") {
				made = append(made, vpptag.Made{Tag: sluiceacl.InterfaceTag(rapid.SampledFrom(ids).Draw(t, "pod")), UID: uids.Draw(t, "uid"), IPs: some.Draw(t, "ips")})
			}
			want := map[api.PodID][]netip.Addr{}
			for _, m := range made {
				for id, life := range model {
					if m.Tag != sluiceacl.InterfaceTag(id) {
						continue
					}
					other := life.UID != "" && m.UID != "" && life.UID != m.UID || len(life.IPs) > 0 && len(m.IPs) > 0 && !share(life.IPs, m.IPs)
					if why := l.Refuses(id, m); (why != "") != other {
						t.Fatalf("%v of %s with %v: %q", m, id, life, why)
					}
					if !other {
						want[id] = append(want[id], m.IPs...)
					}
				}
			}
			got := l.Registered(made)
			for _, id := range ids {
				if !slices.Equal(got[id], want[id]) {
					t.Fatalf("%s has %v, want %v", id, got[id], want[id])
				}
			}
		}
	})
}

func share(a, b []netip.Addr) bool {
	for _, x := range a {
		if slices.Contains(b, x) {
			return true
		}
	}
	return false
}
