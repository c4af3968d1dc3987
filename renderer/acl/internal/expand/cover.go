package expand

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// shadowIndex finds entries that can never match, because one before them matches all
// that they match. It remembers only what can hide something: the entries of lines
// whose traffic a later line has, or has a part of.
//
// Of an entry the one address is looked for among few, the other one among many;
// which is which stays the same for a whole expansion.
type shadowIndex struct {
	kinds map[traffic]*covered
	wide  []traffic // those of kinds that contain other traffic than their own
	over  map[traffic][]*covered

	line   *line
	now    []*covered // what may hide entries of the present line
	above  []*bart.Lite
	record *bart.Lite // where the entries of the present line go; nil when nobody asks
}

// covered are the entries with the same traffic: by the few, the many.
type covered struct{ places bart.Table[*bart.Lite] }

// maxWide bounds for how many kinds of traffic it is found out that they contain
// others. Beyond it, entries that never match stay: that is no error.
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

// need has the entries of a kind remembered, because they may hide those of another.
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

// at goes on to the entries with one of the few addresses.
func (c *shadowIndex) at(few netip.Prefix) {
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

// isShadowed reports whether the entry with the other address can never match, and remembers
// it otherwise.
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
