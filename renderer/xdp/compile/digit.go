package compile

import (
	"cmp"
	"slices"
)

// entry is a prefix that ends within a digit of 16 bits.
type entry struct {
	start uint16
	bits  uint8 // of the digit, 1 to 16; 0 is the whole of it
	own   own   // the atoms with exactly this prefix
	class class // of its addresses when it was last written; 0 before
}

func compareEntries(a, b entry) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.bits, b.bits))
}

func (e entry) end() int { return int(e.start) + 1<<(16-e.bits) }

// kid is the next digit of addresses for a key.
type kid struct {
	key uint16
	to  *digit
}

// content has sorted entries and kids.
type content struct {
	entries []entry
	kids    []kid
}

// entry finds an entry.
func (c *content) entry(start uint16, bits uint8) (int, bool) {
	e := entry{start: start, bits: bits}
	if n := len(c.entries); n == 0 || compareEntries(c.entries[n-1], e) < 0 {
		return n, false // most come in order
	}
	return slices.BinarySearchFunc(c.entries, e, compareEntries)
}

func (c *content) kid(key uint16) (int, bool) {
	if n := len(c.kids); n == 0 || c.kids[n-1].key < key {
		return n, false // most come in order
	} else if c.kids[n-1].key == key {
		return n - 1, true
	}
	return slices.BinarySearchFunc(c.kids, key, func(k kid, key uint16) int { return cmp.Compare(k.key, key) })
}

// digit has the prefixes of addresses that share all earlier digits.
type digit struct {
	wide  content   // everything; if there are buckets, entries of up to 8 bits only
	fine  []*bucket // nil, or 256 by the high byte; empty ones are nil
	size  int       // number of entries and kids, those in fine included
	dirty bool      // something changed here or below since it was written

	built bool   // cell is written, for cover
	cover class  // class of the whole digit, from shorter prefixes
	cell  uint32 // its kind, and where it is

	node      uint32 // line of the node of this digit, IPv6 only; 0 for none
	headCover class  // cover when node was written
}

// bucket is the part of a digit that shares the high byte.
type bucket struct {
	content
	dirty bool
	built bool
	cover class
	cell  uint32
}

// A digit is divided at many entries and kids, and joined below few.
const (
	many = 32
	few  = 12
)

// contentOf returns the content to which an entry or a kid belongs.
func (d *digit) contentOf(key uint16, bits uint8) *content {
	if d.fine == nil || bits <= 8 {
		return &d.wide
	}
	b := d.fine[key>>8]
	if b == nil {
		b = &bucket{}
		d.fine[key>>8] = b
	}
	b.dirty = true
	return &b.content
}

// divide moves the content into buckets.
func (d *digit) divide() {
	old := d.wide
	d.wide, d.fine = content{}, make([]*bucket, 256)
	for _, e := range old.entries {
		c := d.contentOf(e.start, e.bits)
		c.entries = append(c.entries, e)
	}
	for _, k := range old.kids {
		c := d.contentOf(k.key, 16)
		c.kids = append(c.kids, k)
	}
}

// join moves the content of buckets together, and frees their cells.
func (d *digit) join(a *arena) {
	if d.built {
		a.dropCell(d.cell)
		d.cell = 0
	}
	for _, b := range d.fine {
		if b != nil {
			d.wide.entries = append(d.wide.entries, b.entries...)
			d.wide.kids = append(d.wide.kids, b.kids...)
		}
	}
	slices.SortFunc(d.wide.entries, compareEntries)
	d.fine, d.built = nil, false
}

// change changes the atoms of a prefix. f gets the current atoms and returns the new ones. change
// returns the class of a prefix that has none any more, else 0.
func (d *digit) change(start uint16, bits uint8, f func(own) own) (left class) {
	if d.fine == nil && d.size >= many {
		d.divide()
	}
	c := d.contentOf(start, bits)
	i, found := c.entry(start, bits)
	var old own
	if found {
		old = c.entries[i].own
	}
	now := f(old)
	switch {
	case now == old:
		return 0
	case !found:
		c.entries = slices.Insert(c.entries, i, entry{start: start, bits: bits, own: now})
		d.size++
	case now == 0:
		left = c.entries[i].class
		c.entries = slices.Delete(c.entries, i, i+1)
		d.size--
	default:
		c.entries[i].own = now
	}
	d.dirty = true
	return left
}

// next returns the digit that follows a key, nil for none. With add, it creates a missing one.
func (d *digit) next(key uint16, add bool) *digit {
	if d.fine == nil && d.size >= many && add {
		d.divide()
	}
	c := d.contentOf(key, 16)
	i, found := c.kid(key)
	if found {
		d.dirty = true
		return c.kids[i].to
	}
	if !add {
		return nil
	}
	to := &digit{}
	c.kids = slices.Insert(c.kids, i, kid{key, to})
	d.size++
	d.dirty = true
	return to
}

// forget drops the digit that follows a key.
func (d *digit) forget(key uint16) {
	c := d.contentOf(key, 16)
	if i, found := c.kid(key); found {
		c.kids = slices.Delete(c.kids, i, i+1)
		d.size--
		d.dirty = true
	}
}
