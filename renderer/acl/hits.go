package acl

import "github.com/sluice-net/sluice/renderer/cache"

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
		if s == nil {
			continue
		}
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
