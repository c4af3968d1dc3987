package acl

import "github.com/sluice-net/sluice/renderer/cache"

// hitsOf adds up, for every rule of an installed table, how often its entries decided.
// It is nil where the vswitch does not count. Called with the lock held.
func (r *Renderer) hitsOf(t *cache.Table, slots []*slot) []uint64 {
	if r.options.Counters == nil {
		return nil
	}
	hits := make([]uint64, len(t.Rules))
	for _, s := range slots {
		if s == nil {
			continue
		}
		for n, index := range s.indexes {
			packets, ok := r.options.Counters(index)
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
