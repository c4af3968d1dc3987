package acl

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestLimitsDependOnWhatWasToldOnly tells random transactions and compares with limits
// that are told the last state at once.
func TestLimitsDependOnWhatWasToldOnly(t *testing.T) {
	var lists []*renderer.RuleList
	for i := range 4 {
		origin := func(rule int) []api.Origin {
			return []api.Origin{{Policy: api.PolicyID{Namespace: "shop", Name: "p"}, Rule: rule}}
		}
		lists = append(lists, nil, renderer.NewRuleList([]api.ContivRule{
			{Action: api.Permit, Protocol: api.SCTP, DstPort: api.Port(uint16(100 + i))},
			{Action: api.Permit, Protocol: api.SCTP, DstPort: api.Ports(200, 300)},
			{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}, {},
		}, [][]api.Origin{origin(i), origin(0), origin(9), origin(api.IsolationRule)}), renderer.NewRuleList(
			[]api.ContivRule{{Action: api.Permit, Protocol: api.SCTP}, {}}, [][]api.Origin{origin(8), origin(api.IsolationRule)}))
	}
	rapid.Check(t, func(t *rapid.T) {
		x, state := newLimits(), map[api.PodID]podLists{}
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			resync := rapid.IntRange(0, 5).Draw(t, "resync when 0") == 0
			if resync {
				clear(state)
			}
			var told []podLists
			for range rapid.IntRange(0, 4).Draw(t, "pods") {
				some := rapid.SampledFrom(lists)
				p := podLists{api.PodID{Namespace: "shop", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")},
					lossy(some.Draw(t, "ingress")), lossy(some.Draw(t, "egress"))}
				state[p.pod] = p
				told = append(told, p)
			}
			x.told(resync, told)
			x.stack(rapid.SampledFrom([]string{"25.10-release", "sluice-vswitch dev", ""}).Draw(t, "version"))
			if got := x.unenforced(); !slices.IsSortedFunc(got, renderer.Unenforced.Compare) || len(got) > 0 && &got[0] != &x.unenforced()[0] {
				t.Fatal("not sorted, or another slice although nothing is different")
			}
		}
		fresh := newLimits()
		fresh.lossy = x.lossy
		for _, p := range state {
			fresh.told(false, []podLists{p})
		}
		if diff := cmp.Diff(fresh.unenforced(), x.unenforced()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestWhatIsSaidOfOneRuleSeveralTimesIsSaidOnce(t *testing.T) {
	w := &wanted{}
	rule := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "p"}, Rule: 1}
	for range 3 { // interfaces
		w.refuse(ErrTooLarge, reasonACLs, [][]api.Origin{{rule}, {rule}}, 1)
	}
	x := newLimits()
	x.refused(w.oversize)
	want := []renderer.Unenforced{{Origin: rule, Class: api.ClassLimit, Reason: reasonACLs, Effect: renderer.EffectPrevious, Pods: 3}}
	if diff := cmp.Diff(want, x.unenforced()); diff != "" {
		t.Error(diff)
	}
	if x.refused(nil); len(x.unenforced()) > 0 {
		t.Errorf("left over: %v", x.unenforced())
	}
}
