package expand

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// shadowIndex finds shadowed entries: entries that can never match, because an earlier entry
// matches everything that they match. It stores only entries that can shadow others: those of lines
// whose traffic a later line has, completely or in part.
//
// One address of an entry is looked up among few, the other among many. Which side is which is
// fixed for a whole expansion.
type shadowIndex struct {
	kinds map[traffic]*covered
	wide  []traffic // kinds of traffic that contain other kinds
	over  map[traffic][]*covered

	line   *line
	now    []*covered // entries that may shadow those of the current line
	above  []*bart.Lite
	record *bart.Lite // receives the entries of the current line; nil when none are needed
}

// covered holds the entries with the same traffic: by the few, then the many.
type covered struct{ places bart.Table[*bart.Lite] }

// maxWide bounds the number of kinds of traffic that are checked for containing others. Beyond it,
// shadowed entries stay, which is harmless.
const maxWide = 64

func newShadowIndex(lines []line) *shadowIndex {
	c := &shadowIndex{kinds: make(map[traffic]*covered), over: make(map[traffic][]*covered)}
	seen := make(map[traffic]bool, len(lines))
	for i := range lines {
		t := lines[i].traffic
		if seen[t] {
			c.need(t, t)
		}
		for _, w := range c.wide {
			if w != t && w.contains(t) {
				c.need(w, t)
			}
		}
		if !seen[t] && (t.everyTraffic() || t.dport.First != t.dport.Last) && len(c.wide) < maxWide {
			c.wide = append(c.wide, t)
		}
		seen[t] = true
	}
	return c
}

// need makes the index store the entries of a kind, because they may shadow those of another.
func (c *shadowIndex) need(kind, other traffic) {
	k := c.kinds[kind]
	if k == nil {
		k = new(covered)
		c.kinds[kind] = k
	}
	if !slices.Contains(c.over[other], k) {
		c.over[other] = append(c.over[other], k)
	}
}

// begin starts a line.
func (c *shadowIndex) begin(l *line) { c.line, c.now = l, c.over[l.traffic] }

// moveTo moves on to the entries with one of the few addresses.
func (c *shadowIndex) moveTo(few netip.Prefix) {
	c.above, c.record = c.above[:0], nil
	for _, k := range c.now {
		for _, many := range k.places.Supernets(few) {
			c.above = append(c.above, many)
		}
	}
	k := c.kinds[c.line.traffic]
	if k == nil {
		return
	}
	many, ok := k.places.Get(few)
	if !ok {
		many = new(bart.Lite)
		k.places.Insert(few, many)
	}
	c.record = many
}

// isShadowed reports whether the entry with the other address can never match, and stores it
// otherwise.
func (c *shadowIndex) isShadowed(many netip.Prefix) bool {
	for _, t := range c.above {
		if t.LookupPrefix(many) {
			return true
		}
	}
	if c.record != nil {
		c.record.Insert(many)
	}
	return false
}
