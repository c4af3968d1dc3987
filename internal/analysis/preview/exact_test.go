package preview

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
)

// has reports whether flows are reported for which a flow is one before the change.
func (c *comparison) has(results []result, f api.Flow, opens bool) bool {
	for _, r := range results {
		for _, x := range r.flows {
			if x.opens == opens && x.is4 == f.Src.Is4() && c.isOf(x.from, x.to, f.Src) && c.isOf(x.to, x.from, f.Dst) &&
				slices.ContainsFunc(x.ports, func(a atom) bool { return a.holds(f) }) {
				return true
			}
		}
	}
	return false
}

// isOf reports whether an address is that of a party in flows with another one.
func (c *comparison) isOf(p, other party, a netip.Addr) bool {
	for _, s := range []*state{c.was, c.is} {
		for _, id := range s.PodsAt(a) {
			if p.class != nil && slices.Contains(p.class.members, id) {
				return true
			}
		}
	}
	if p.class != nil || len(c.was.PodsAt(a))+len(c.is.PodsAt(a)) > 0 {
		return false
	}
	_, isNode := slices.BinarySearchFunc(c.nodes, a, netip.Addr.Compare)
	apart := c.words.tiers || other.class.moved
	switch own := other.isOn(a); {
	case apart && isNode != (p.name != ""):
		return false
	case isNode && apart:
		return own == other.isOn(p.addr) && p.isAlike(c, a)
	case own != [2]bool{}:
		return false
	}
	var longest netip.Prefix
	for _, r := range p.all {
		if r.prefix.Contains(a) && r.prefix.Bits() >= longest.Bits() {
			longest = r.prefix
		}
	}
	return slices.ContainsFunc(p.where, func(r region) bool { return r.prefix == longest })
}

// isAlike reports whether rules tell two nodes apart neither by their labels nor by their
// addresses.
func (p party) isAlike(c *comparison, a netip.Addr) bool {
	kind := func(a netip.Addr) string {
		return fmt.Sprint(c.words.blocks.rules(a), c.was.selected[a], c.is.selected[a])
	}
	return kind(a) == kind(p.addr)
}

// TestCompareIsExact compares what is reported with a look at every flow on the edges of random
// clusters, before and after everything that may happen to them.
func TestCompareIsExact(t *testing.T) {
	seeds, opened, closed := uint64(12), 0, 0
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		cfg := cluster.Small()
		if seed%3 == 1 {
			cfg = cluster.SmallWithSharedAddresses()
		}
		if seed%3 == 2 {
			cfg.Admin = 0
		}
		steps := cluster.RandomSequence(seed, cfg, 5)
		for i := range steps[1:] {
			before, after := described.Of(steps[i].State), described.Of(steps[i+1].State)
			c, results, err := compare(context.Background(), before, after, Options{})
			if err != nil {
				t.Fatal(err)
			}
			o, n := checkExact(t, c, results)
			if opened, closed = opened+o, closed+n; t.Failed() {
				t.Fatalf("seed %d, step %d: %s", seed, i+1, steps[i+1].What)
			}
		}
	}
	if !testing.Short() && (opened < 50 || closed < 50) {
		t.Errorf("%d flows opened and %d closed: too few to mean anything", opened, closed)
	}
}

// checkExact asks both states about all flows between ends that are the same in both.
func checkExact(t *testing.T, c *comparison, results []result) (opened, closed int) {
	t.Helper()
	was, is := oracle.New(c.was.State()), oracle.New(c.is.State())
	stays := func(a netip.Addr) bool { return slices.Equal(was.PodsAt(a), is.PodsAt(a)) }
	flows := map[api.Flow]bool{}
	for _, f := range slices.Concat(cluster.Flows(c.was.State()), cluster.Flows(c.is.State())) {
		flows[f] = true
	}
	for f := range flows {
		if f.Src == f.Dst || !stays(f.Src) || !stays(f.Dst) {
			continue
		}
		allowed, allows := was.Allowed(f), is.Allowed(f)
		switch {
		case isReserved(f):
		case allowed == allows:
			if c.has(results, f, !allows) {
				t.Errorf("%s: allowed %t before and after, and is reported", f, allowed)
			}
		case !c.has(results, f, allows):
			t.Errorf("%s: allowed %t before and %t after, and it is not reported", f, allowed, allows)
		case allows:
			opened++
		default:
			closed++
		}
	}
	return opened, closed
}

// isReserved reports whether a flow has an end that no packet has.
func isReserved(f api.Flow) bool { return isSpecial(f.Src) || isSpecial(f.Dst) }
