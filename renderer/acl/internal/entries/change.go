package entries

import "net/netip"

// Change is how a local table changes. Every entry whose source overlaps none of the prefixes
// Around stays.
type Change struct {
	Around []netip.Prefix // in order; none contains another
	Blocks [2][]Run       // of the whole table, before and now; both have the same verdicts

	// Within returns the entries that each block had and has whose sources overlap some prefixes.
	Within func(around []netip.Prefix) (before, after []List)
}

// Count returns the number of entries that the table has now.
func (c *Change) Count() (n int) {
	for _, r := range c.Blocks[1] {
		n += r.Count
	}
	return n
}
