package session

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

// linesOf makes the lines of rules that match every peer.
func linesOf(maxPorts int, rules ...api.ContivRule) []line {
	nets := cache.NewNets(func(api.SetID) (none cache.Families) { return none })
	return expressible{maxPorts}.lines(rules, destination, api.TCP, 0, nets, nil)
}

func tcpRule(a api.Action, r api.PortRange) api.ContivRule {
	return api.ContivRule{Action: a, Protocol: api.TCP, DstPort: r}
}

// TestLinesOfDenyWithTooManyPorts uses rules as the cache writes them when a pod
// may send anything and its peer accepts port 80, 443 and a range that is too wide.
func TestLinesOfDenyWithTooManyPorts(t *testing.T) {
	lines := linesOf(11, tcpRule(api.Deny, api.Ports(0, 79)), tcpRule(api.Deny, api.Ports(81, 442)), tcpRule(api.Deny, api.Ports(444, 1023)),
		api.ContivRule{Action: api.Permit})
	for port, want := range map[uint16]api.Action{79: api.Deny, 80: api.Permit, 81: api.Deny, 443: api.Permit, 1023: api.Deny, 1024: api.Deny, 65535: api.Deny} {
		if got := first(lines, testAddrs[0][0], port); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
}

// TestLinesPermitNoMoreThanRules compares lines with their rules. Where they differ, lines deny a
// port that rules permit, next to too many ports or because a deny is too wide.
func TestLinesPermitNoMoreThanRules(t *testing.T) {
	const limit = 5
	starts := []uint16{1, 79, 80, 84, 85, 443, 1024, 65531, 65535}
	rapid.Check(t, func(t *rapid.T) {
		var rules []api.ContivRule
		for range rapid.IntRange(0, 5).Draw(t, "rules") {
			r := tcpRule(drawAction(t), api.Port(rapid.SampledFrom(starts).Draw(t, "first")))
			r.DstPort.Last = uint16(min(1<<16-1, int(r.DstPort.First)+rapid.SampledFrom([]int{0, 0, 1, 3, 4, 5, 400}).Draw(t, "more")))
			rules = append(rules, r)
		}
		rules = append(rules, api.ContivRule{Action: drawAction(t)})
		lines := linesOf(limit, rules...)
		for _, start := range starts {
			for _, port := range []uint16{start - 1, start, start + 1, start + 4, start + 5} {
				if port == 0 {
					continue // there are no connections to it
				}
				want, got := ruled(rules, port), first(lines, testAddrs[0][0], port)
				if got != want && (got != api.Deny || !slices.ContainsFunc(rules, func(r api.ContivRule) bool { return !r.DstPort.IsAny() && r.DstPort.Last-r.DstPort.First >= limit })) {
					t.Fatalf("port %d: %s, want %s by %v; lines are %v", port, got, want, rules, lines)
				}
			}
		}
	})
}

// ruled returns the action of the first rule that matches.
func ruled(rules []api.ContivRule, port uint16) api.Action {
	for _, r := range rules {
		if r.DstPort.Contains(port) {
			return r.Action
		}
	}
	panic("the last rule matches everything")
}

// TestWantedSectionThatIsNotCompiledIsNotOpen: rules that are too much work restrict a section even
// if none was found so far.
func TestWantedSectionThatIsNotCompiledIsNotOpen(t *testing.T) {
	var rules []api.ContivRule
	for i := range 100 {
		rules = append(rules, api.ContivRule{
			Action: api.Permit, Src: api.AddrNet(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})), Protocol: api.TCP, DstPort: api.Port(uint16(1 + 2*i)),
		})
	}
	rules = append(rules, api.ContivRule{Action: api.Permit})
	nets := cache.NewNets(func(api.SetID) (none cache.Families) { return none })
	for most, tooMany := range map[int]bool{0: true, 10: false} {
		c := compiler{can: expressible{DefaultMaxPorts}, most: most, made: map[wantedKey]*wanted{}}
		w := c.wanted(wantedKey{global: true, transport: api.TCP}, rules, source, nets, nil, "", nil)
		if got := w != nil && w.tooMany; got != tooMany || !tooMany && w != nil {
			t.Errorf("with %d rules at most: wanted %+v, too many %t, want %t", most, w, got, tooMany)
		}
	}
}
