package cache

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestUnenforcedTrackerHasNoHistory applies random transactions and compares the
// result with a tracker that receives only the final state.
func TestUnenforcedTrackerHasNoHistory(t *testing.T) {
	var lists []*renderer.RuleList
	for i := range 4 {
		origin := func(rule int) []api.Origin {
			return []api.Origin{{Policy: api.PolicyID{Namespace: "shop", Name: "p"}, Rule: rule}}
		}
		lists = append(lists, nil, renderer.NewRuleList([]api.ContivRule{
			{Action: api.Permit, Protocol: api.SCTP, DstPort: api.Port(uint16(100 + i))},
			{Action: api.Deny, Protocol: api.SCTP, DstPort: api.Ports(200, 300)},
			{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}, {},
		}, [][]api.Origin{origin(i), origin(0), origin(9), origin(api.IsolationRule)}), renderer.NewRuleList(
			[]api.ContivRule{{Action: api.Permit, Protocol: api.SCTP}, {}}, [][]api.Origin{origin(8), origin(api.IsolationRule)}))
	}
	rapid.Check(t, func(t *rapid.T) {
		newShortfall := func() *UnenforcedTracker {
			x := NewUnenforcedTracker("ports of SCTP", func(r *api.ContivRule) bool { return r.Protocol == api.SCTP && !r.DstPort.IsAny() })
			return &x
		}
		x, state := newShortfall(), map[api.PodID]renderer.PodConfig{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			resync := rapid.IntRange(0, 5).Draw(t, "resync when 0") == 0
			if resync {
				clear(state)
			}
			staged := renderer.Changes{Resync: resync}
			for range rapid.IntRange(0, 4).Draw(t, "pods") {
				some, id := rapid.SampledFrom(lists), api.PodID{Namespace: "shop", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")}
				if rapid.IntRange(0, 4).Draw(t, "removed when 0") == 0 {
					staged.Remove(id)
					delete(state, id)
					continue
				}
				state[id] = renderer.PodConfig{Ingress: some.Draw(t, "ingress"), Egress: some.Draw(t, "egress")}
				staged.Render(id, state[id])
			}
			x.Track(staged)
			x.SetMatters(rapid.Bool().Draw(t, "matters"))
			if got := x.Unenforced(); !slices.IsSortedFunc(got, renderer.Unenforced.Compare) || len(got) > 0 && &got[0] != &x.Unenforced()[0] {
				t.Fatal("not sorted, or another slice although nothing is different")
			}
		}
		fresh := newShortfall()
		fresh.SetMatters(x.Matters())
		staged := renderer.Changes{Resync: true}
		for id, cfg := range state {
			staged.Render(id, cfg)
		}
		fresh.Track(staged)
		if diff := cmp.Diff(fresh.Unenforced(), x.Unenforced()); diff != "" {
			t.Fatal(diff)
		}
	})
}
