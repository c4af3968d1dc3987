package cache

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestRulesAboutFindsCommonTraffic compares the index with a scan of all rules.
func TestRulesAboutFindsCommonTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ports := func(label string) api.PortRange {
			first := rapid.Uint16Range(1, 40).Draw(t, label)
			return api.Ports(first, first+rapid.Uint16Range(0, 30).Draw(t, label+" more"))
		}
		var rules []api.ContivRule
		var origins [][]api.Origin
		var all []uint32
		for i := range rapid.IntRange(0, 12).Draw(t, "rules") {
			rules = append(rules, api.ContivRule{Action: rapid.SampledFrom([]api.Action{api.Deny, api.Permit}).Draw(t, "action"), Protocol: api.TCP, DstPort: ports("rule")})
			origins = append(origins, []api.Origin{{Rule: i}})
			all = append(all, uint32(i))
		}
		r := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: ports("exception")}
		x := newOriginIndex()
		about := []*rulesAbout{newRulesAbout(renderer.NewRuleList(rules, origins), all)}
		var want []api.Origin
		for i, rule := range rules {
			if rule.Action == r.Action && overlap(rule, r) {
				want = append(want, origins[i]...)
			}
		}
		if got := x.of(about, r); !slices.Equal(got, want) {
			t.Fatalf("%v of %v come from %v, want %v", r, rules, got, want)
		}
	})
}
