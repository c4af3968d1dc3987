package acl

import "github.com/sluice-net/sluice/renderer/cache"

// counters returns how often each entry of an ACL has decided, see Options.Counters.
type counters func(aclIndex uint32) (packets []uint64, ok bool)

// sharing returns for every rule of a table whose entries stand for it, see
// countedWith; pieces are the rules of its entries.
func sharing(t *cache.Table, pieces [][]int32) []int {
	own := make([]bool, len(t.Rules))
	for _, rules := range pieces {
		for _, rule := range rules {
			if rule >= 0 && int(rule) < len(own) {
				own[rule] = true
			}
		}
	}
	return countedWith(t.Rules, own)
}
