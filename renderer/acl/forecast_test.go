package acl_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// gauge tracks the memory use of the vswitch between any two changes.
type gauge struct {
	s    *subject
	peak uint64 // since the start
	most int    // maximum of applied entries so far: VPP keeps their memory
}

func newGauge(s *subject) *gauge {
	g := &gauge{s: s}
	s.tap.changed = func([]byte) { g.look() }
	return g
}

func (g *gauge) look() {
	entries := make(map[uint32]int)
	held, applied := 0, 0
	for _, a := range g.s.sw.ACLs() {
		entries[a.Index] = a.Rules
		held += a.Rules
	}
	for _, i := range g.s.sw.Interfaces() {
		for _, index := range slices.Concat(i.Inputs, i.Outputs) {
			applied += entries[index]
		}
	}
	g.most = max(g.most, applied)
	g.peak = max(g.peak, sluiceacl.Bytes(held, applied))
}

// withPeerSets gives every pod a table about a set, except pods without a set.
func withPeerSets(x *renderer.Changes, sets []api.SetID, port uint16) {
	for i, id := range sets {
		c := renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}}
		if id != 0 {
			c.Egress = list(from(api.SetNet(id), port))
		}
		x.Render(shopPods[i], c)
	}
}

// TestForecastSplitsWhatFitsOnlyInSteps shrinks one table and grows another. Both fit, but
// the second must not grow before the first has shrunk.
func TestForecastSplitsWhatFitsOnlyInSteps(t *testing.T) {
	for _, ids := range [][2]api.SetID{{101, 102}, {102, 101}} {
		s := limited(t)
		first, second := ids[0], ids[1]
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			x.UpdateSet(first, scattered(2000), nil)
			x.UpdateSet(second, scattered(300), nil)
			withPeerSets(x, []api.SetID{101, 102, 0, 0}, 80)
		})
		g := newGauge(s)
		commit(t, s.Renderer(), false, func(x *renderer.Changes) {
			x.UpdateSet(first, nil, scattered(2000)[300:])
			x.UpdateSet(second, scattered(2000)[300:], nil)
		})
		g.look()
		if g.peak > budget {
			t.Errorf("at the worst moment %d bytes are taken of %d", g.peak, budget)
		}
		if got := s.r.Unenforced(); len(got) > 0 {
			t.Errorf("refused: %v", got)
		}
	}
}

// few is the memory of the ACLs that every pod with a table, or a blocked pod, has.
var few = sluiceacl.Bytes(20, 60)

// TestForecastKnowsEveryMoment makes random plans with little memory. At no moment may the ACLs
// exceed the budget or the forecast.
func TestForecastKnowsEveryMoment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSubject(t, shopPods...)
		defer func() { _ = s.Close() }()
		s.tiny = rapid.Bool().Draw(rt, "tiny")
		s.options.Memory = uint64(rapid.IntRange(50, 600).Draw(rt, "KB")) << 10
		if err := s.Restart(); err != nil {
			rt.Fatal(err)
		}
		g := newGauge(s)
		held := make(map[api.SetID][]netip.Prefix)
		refused := 0
		for step := range rapid.IntRange(2, 8).Draw(rt, "steps") {
			fill := func(x *renderer.Changes) {
				var sets []api.SetID
				for range shopPods {
					sets = append(sets, rapid.SampledFrom([]api.SetID{0, 101, 102, 103}).Draw(rt, "set"))
				}
				for _, id := range []api.SetID{101, 102, 103} {
					n, skip := rapid.IntRange(0, 600).Draw(rt, "members"), rapid.IntRange(0, 300).Draw(rt, "skipped")
					next := scattered(n + skip)[skip:]
					x.UpdateSet(id, next, slices.DeleteFunc(slices.Clone(held[id]), func(p netip.Prefix) bool { return slices.Contains(next, p) }))
					held[id] = next
				}
				withPeerSets(x, sets, rapid.SampledFrom([]uint16{80, 443}).Draw(rt, "port"))
			}
			g.peak = 0
			err := try(t, s.router.Over(s.r), step == 0, fill)
			if err != nil && !errors.Is(err, sluiceacl.ErrTooLarge) {
				rt.Fatal(err)
			}
			g.look()
			m := s.r.State().Memory
			if g.peak > m.Budget+few {
				rt.Fatalf("step %d: at the worst moment %d bytes are taken of %d (%v)", step, g.peak, m.Budget, err)
			}
			if err == nil && g.peak > m.Needed {
				rt.Fatalf("step %d: at the worst moment %d bytes are taken, forecast were %d", step, g.peak, m.Needed)
			}
			if err != nil {
				refused++
			}
		}
		rt.Logf("%d commits were refused in part", refused)
	})
}
