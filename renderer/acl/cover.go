package acl

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// cover finds entries that can never match, because one before them matches all
// that they match. It remembers only what can hide something: the entries of lines
// whose traffic a later line has, or has a part of.
//
// Of an entry the one address is looked for among few, the other one among many;
// which is which stays the same for a whole expansion.
type cover struct {
	kinds map[traffic]*covered
	wide  []traffic // those of kinds that contain other traffic than their own
	over  map[traffic][]*covered
}

// spot is what is known of the entries with one of the few addresses.
type spot struct {
	above  []*bart.Lite // the many that hide entries of the present line
	record *bart.Lite   // where the entries of the present line go; nil when nobody asks
}

// covered are the entries with the same traffic: by the few, the many.
type covered struct{ places bart.Table[*bart.Lite] }

// maxWide bounds for how many kinds of traffic it is found out that they contain
// others. Beyond it, entries that never match stay: that is no error.
const maxWide = 64

func newCover(lines []line) *cover {
	c := &cover{kinds: make(map[traffic]*covered), over: make(map[traffic][]*covered)}
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
		if !seen[t] && (t.everyTraffic() || t.dport.first != t.dport.last) && len(c.wide) < maxWide {
			c.wide = append(c.wide, t)
		}
		seen[t] = true
	}
	return c
}

// need has the entries of a kind remembered, because they may hide those of another.
func (c *cover) need(kind, other traffic) {
	k := c.kinds[kind]
	if k == nil {
		k = new(covered)
		c.kinds[kind] = k
	}
	if !slices.Contains(c.over[other], k) {
		c.over[other] = append(c.over[other], k)
	}
}

// at returns what is known of one of the few addresses of a line.
func (c *cover) at(l *line, few netip.Prefix) (s spot) {
	for _, k := range c.over[l.traffic] {
		for _, many := range k.places.Supernets(few) {
			s.above = append(s.above, many)
		}
	}
	k := c.kinds[l.traffic]
	if k == nil {
		return s
	}
	many, ok := k.places.Get(few)
	if !ok {
		many = new(bart.Lite)
		k.places.Insert(few, many)
	}
	s.record = many
	return s
}

// hides says whether the entry with the other address can never match, and remembers
// it otherwise.
func (s *spot) hides(many netip.Prefix) bool {
	for _, t := range s.above {
		if t.LookupPrefix(many) {
			return true
		}
	}
	if s.record != nil {
		s.record.Insert(many)
	}
	return false
}
