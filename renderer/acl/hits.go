package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

// counters returns how often each entry of an ACL has decided, see Options.Counters.
type counters func(aclIndex uint32) (packets []uint64, ok bool)

// hitsOf adds up, for every rule of an installed table, how often its entries decided.
// It is nil without counters. Called with the lock of the renderer held.
func (c counters) hitsOf(t *cache.Table, slots []*slot) []uint64 {
	if c == nil {
		return nil
	}
	hits := make([]uint64, len(t.Rules))
	for _, s := range slots {
		for n, index := range s.indexes {
			packets, ok := c(index)
			if !ok || n >= len(s.want) {
				continue // deleted meanwhile, or not known yet
			}
			for i, rule := range s.want[n].rules {
				if i < len(packets) && int(rule) < len(hits) {
					hits[rule] += packets[i]
				}
			}
		}
	}
	return hits
}

// sharing returns for every rule of an installed table whose entries stand for it,
// see countedWith.
func sharing(t *cache.Table, slots []*slot) []int {
	own := make([]bool, len(t.Rules))
	for _, s := range slots {
		for _, p := range s.want {
			for _, rule := range p.rules {
				if int(rule) < len(own) {
					own[rule] = true
				}
			}
		}
	}
	return countedWith(t.Rules, own)
}

// originsOf returns the origins of all rules that the entries of a rule stand for.
func originsOf(origins [][]api.Origin, with []int, rule int) []api.Origin {
	if rule >= len(origins) {
		return nil
	}
	out := origins[rule]
	for i := rule + 1; i < min(len(with), len(origins)); i++ { // it is the first of them
		if with[i] == rule {
			out = slices.Concat(out, origins[i])
		}
	}
	if len(out) > len(origins[rule]) {
		slices.SortFunc(out, api.Origin.Compare)
		out = slices.Compact(out)
	}
	return out
}

// HitOrigins returns the origins of all rules whose hits those of a rule include.
func (t DumpTable) HitOrigins(rule int) []api.Origin {
	return originsOf(t.Origins, t.CountedWith, rule)
}
