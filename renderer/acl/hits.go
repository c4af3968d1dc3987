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
			addHits(hits, s.want[n].rules, packets)
		}
	}
	return hits
}

// sharing returns for every rule of a table whose entries stand for it, see
// countedWith; pieces are the rules of its entries.
func sharing(t *cache.Table, pieces [][]int32) []int {
	own := make([]bool, len(t.Rules))
	for _, rules := range pieces {
		for _, rule := range rules {
			if int(rule) < len(own) {
				own[rule] = true
			}
		}
	}
	return countedWith(t.Rules, own)
}

// rulesIn returns the rules of all entries in some slots.
func rulesIn(slots []*slot) (out [][]int32) {
	for _, s := range slots {
		for _, p := range s.want {
			out = append(out, p.rules)
		}
	}
	return out
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
