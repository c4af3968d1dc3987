package acl

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

func TestCountersOfRuleAreThoseOfEntries(t *testing.T) {
	counted := map[uint32][]uint64{7: {1, 2, 4}, 9: {8, 16, 32}}
	count := counters.Reader(func(acl uint32) ([]uint64, bool) {
		hits, ok := counted[acl]
		return hits, ok
	})
	p := counters.Table{Of: &cache.Table{Rules: make([]api.ContivRule, 3)}, ACLs: []counters.ACL{
		{Index: 7, Rules: []int32{0, 0, 1}}, {Index: 9, Rules: []int32{1, 2}},
		{Index: 11, Rules: []int32{2}}, // gone
		{Index: 9},
	}}
	y := counters.NewAccumulator(count)
	y.Look([]counters.Table{p})
	if got := y.Read().Hits[p.Of.Digest]; !slices.Equal(got, []uint64{3, 12, 16}) {
		t.Errorf("hits are %v", got)
	}
}

func TestCountersIncludeRulesThatShareEntries(t *testing.T) {
	permit := func(set api.SetID, port uint16) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Src: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(port)}
	}
	origin := func(policy string) []api.Origin { return []api.Origin{{Policy: api.PolicyID{Name: policy}}} }
	table := &cache.Table{
		Rules:   []api.ContivRule{permit(1, 80), permit(2, 80), permit(1, 443), permit(1, 81), permit(2, 444), permit(3, 1), {}},
		Origins: [][]api.Origin{origin("b"), origin("c"), origin("d"), origin("a"), origin("c"), nil, nil},
	}
	with := expand.CountedWith(table, [][]int32{{0, 1, 6, 2}}) // set 1 with 80-81 and 443, set 2 with all ports as gaps
	if want := []int{0, 1, 2, 0, 1, -1, 6}; !slices.Equal(with, want) {
		t.Errorf("rules are counted with %v, want %v", with, want)
	}
	d := renderer.Table{Origins: table.Origins, CountedWith: with}
	for rule, want := range map[int]string{0: "a b", 1: "c", 2: "d", 6: "", 7: ""} {
		var got []string
		for _, o := range d.CountedOrigins(rule) {
			got = append(got, o.Policy.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("hits of rule %d are of %q, want %q", rule, got, want)
		}
	}
}
