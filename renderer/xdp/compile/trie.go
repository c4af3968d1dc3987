package compile

import (
	"encoding/binary"
	"net/netip"
)

// trie maps addresses of one family to classes. The class of an address has the atoms of all
// prefixes that hold it.
type trie struct {
	arena   *arena
	classes *classes
	digits  int // number of digits of an address
	top     digit
	level   []digitRun // buffers of build, by depth
	keys    [8]uint16
	covers  [256]class // of the top digit of IPv4, by high byte, as written
}

// digitRun are the buffers that building one level needs.
type digitRun struct {
	runs, part runs
	open       []frame
}

// frame is a prefix whose end has not been reached yet.
type frame struct {
	end   int
	value uint32
	class class
}

func newTrie(a *arena, c *classes, digits int) *trie {
	t := &trie{arena: a, classes: c, digits: digits, level: make([]digitRun, digits)}
	if digits == digits4 {
		t.top.divide()
	}
	return t
}

// change changes the atoms of a prefix of the family.
func (t *trie) change(p netip.Prefix, f func(own) own) {
	t.split(p.Addr())
	last := max(p.Bits()-1, 0) / 16
	d := &t.top
	path := [8]*digit{d}
	for i := range last {
		d = d.next(t.keys[i], true)
		path[i+1] = d
	}
	t.classes.leave(d.change(t.keys[last], uint8(p.Bits()-16*last), f))
	for i := last; i > 0 && path[i].size == 0; i-- {
		t.discard(path[i])
		path[i-1].forget(t.keys[i-1])
	}
}

// split stores the digits of an address in keys.
func (t *trie) split(a netip.Addr) {
	if t.digits == digits4 {
		b := a.As4()
		t.keys[0], t.keys[1] = binary.BigEndian.Uint16(b[:]), binary.BigEndian.Uint16(b[2:])
		return
	}
	b := a.As16()
	for i := range t.keys {
		t.keys[i] = binary.BigEndian.Uint16(b[2*i:])
	}
}

// discard frees the lines of an empty digit.
func (t *trie) discard(d *digit) {
	t.unwrite(d)
	t.arena.drop(d.node, 1)
	*d = digit{}
}

// build writes the cell of a digit within a cover, unless it is up to date.
func (t *trie) build(d *digit, depth int, cover class) {
	if d.built && !d.dirty && d.cover == cover {
		return
	}
	if d.fine != nil && d.size < few && d != &t.top {
		d.join(t.arena)
	}
	if d.fine != nil {
		t.buildBuckets(d, depth, cover)
	} else {
		if d.built {
			t.arena.dropCell(d.cell)
		}
		l := &t.level[depth]
		l.runs = t.runs(l.runs[:0], depth, &d.wide, 0, rootKeys, cover)
		d.cell = t.arena.writeCell(l.runs)
	}
	d.dirty, d.built, d.cover = false, true, cover
}

// runs appends the function of the keys lo to hi, shifted so that lo becomes 0.
func (t *trie) runs(out runs, depth int, c *content, lo, hi int, cover class) runs {
	open := append(t.level[depth].open[:0], frame{hi, uint32(cover), cover})
	out.from(0, open[0].value)
	closeTo := func(at int) {
		for top := open[len(open)-1]; top.end <= at && len(open) > 1; top = open[len(open)-1] {
			open = open[:len(open)-1]
			if top.end < hi {
				out.from(top.end-lo, open[len(open)-1].value)
			}
		}
	}
	entries, kids := c.entries, c.kids
	for len(entries)+len(kids) > 0 {
		if len(entries) > 0 && (len(kids) == 0 || entries[0].start <= kids[0].key) {
			e := &entries[0]
			entries = entries[1:]
			closeTo(int(e.start))
			of := t.classes.join(open[len(open)-1].class, e.own)
			t.classes.move(e.class, of)
			e.class = of
			open = append(open, frame{e.end(), uint32(of), of})
			out.from(int(e.start)-lo, uint32(of))
			continue
		}
		k := kids[0]
		kids = kids[1:]
		closeTo(int(k.key))
		top := open[len(open)-1]
		t.level[depth].open = open
		out.from(int(k.key)-lo, t.lead(k.to, depth+1, top.class))
		open = append(open, frame{int(k.key) + 1, 0, top.class})
	}
	closeTo(hi)
	t.level[depth].open = open
	return out
}

// buildBuckets writes the node of a divided digit: a copy of the old node with the changed cells.
func (t *trie) buildBuckets(d *digit, depth int, cover class) {
	wide := t.runs(nil, depth, &d.wide, 0, rootKeys, cover)
	node := t.arena.allocate(nodeLines)
	w := 0
	divided := d.built && d.cell&kindMask == kindNode && d.written()
	if d.built && !divided {
		t.arena.dropCell(d.cell)
	}
	for high := range 256 {
		for w+1 < len(wide) && int(wide[w+1].start) <= high<<8 {
			w++
		}
		cell := wide[w].value
		if b := d.fine[high]; b != nil {
			cell = t.buildBucket(b, depth, high, class(cell))
		}
		t.arena.setWord(node*LineWords+uint32(high), cell)
	}
	if divided {
		t.arena.drop(d.cell&payloadMask, nodeLines)
	}
	d.cell = kindNode | node
}

// written reports whether the node of the digit holds cells of the buckets.
func (d *digit) written() bool {
	for _, b := range d.fine {
		if b != nil && b.built {
			return true
		}
	}
	return false
}

func (t *trie) buildBucket(b *bucket, depth, high int, cover class) uint32 {
	if b.built && !b.dirty && b.cover == cover {
		return b.cell
	}
	if b.built {
		t.arena.dropByte(b.cell)
	}
	l := &t.level[depth]
	l.part = t.runs(l.part[:0], depth, &b.content, high<<8, high<<8+256, cover)
	b.cell = t.arena.putByte(l.part)
	b.dirty, b.built, b.cover = false, true, cover
	return b.cell
}

// roots writes the changed cells of the first digit of IPv4 addresses, and calls changed for each.
func (t *trie) roots(root uint32, changed func(word, value uint32)) {
	if !t.top.dirty && t.top.built {
		return
	}
	wide := t.runs(nil, 0, &t.top.wide, 0, rootKeys, 0)
	w := 0
	for high := range 256 {
		for w+1 < len(wide) && int(wide[w+1].start) <= high<<8 {
			w++
		}
		cover, b := class(wide[w].value), t.top.fine[high]
		if same := t.top.built && cover == t.covers[high]; same && (b == nil || !b.dirty) {
			continue
		}
		t.covers[high] = cover
		t.rootsOf(root*LineWords+uint32(high<<8), b, high, cover, changed)
	}
	t.top.dirty, t.top.built = false, true
}

// rootsOf does the work of roots for one high byte, whose cells begin at a word.
func (t *trie) rootsOf(word uint32, b *bucket, high int, cover class, changed func(word, value uint32)) {
	l := &t.level[0]
	l.part = append(l.part[:0], run{0, uint32(cover)})
	if b != nil {
		l.part = t.runs(l.part[:0], 0, &b.content, high<<8, high<<8+256, cover)
		b.dirty = false
	}
	for i, r := range l.part {
		end := 256
		if i+1 < len(l.part) {
			end = int(l.part[i+1].start)
		}
		for key := uint32(r.start); key < uint32(end); key++ {
			if t.arena.word(word+key) != r.value {
				t.arena.setWord(word+key, r.value)
				changed(word+key, r.value)
			}
		}
	}
}

// lead returns the value that leads to a digit within a cover.
func (t *trie) lead(head *digit, depth int, cover class) uint32 {
	if t.digits == digits4 {
		t.build(head, depth, cover)
		return head.cell
	}
	if head.node != 0 && !head.dirty && head.headCover == cover {
		return nextNode | head.node
	}
	line := t.arena.allocate(1)
	t.arena.drop(head.node, 1)
	d := head
	for ; d.size == 1 && len(d.wide.kids) == 1; depth++ { // all addresses here share this digit, so the node compares it
		t.unwrite(d)
		k := d.wide.kids[0]
		t.require(line, depth, k.key)
		d.dirty = false
		d = k.to
		t.arena.drop(d.node, 1)
		d.node = 0
	}
	t.build(d, depth, cover)
	head.node, head.headCover, head.dirty = line, cover, false
	t.arena.setWord(line*LineWords+nodeMiss, uint32(cover))
	t.arena.setWord(line*LineWords+nodeCell, d.cell)
	t.arena.setWord(line*LineWords+nodeDigit, uint32(depth))
	return nextNode | line
}

// require makes a node compare a digit.
func (t *trie) require(line uint32, depth int, key uint16) {
	shift := 16 - 16*(depth%2) // words are in the order of the address
	value, mask := line*LineWords+nodeValue+uint32(depth/2), line*LineWords+nodeMaskW+uint32(depth/2)
	t.arena.setWord(value, t.arena.word(value)|uint32(key)<<shift)
	t.arena.setWord(mask, t.arena.word(mask)|0xffff<<shift)
}

// unwrite frees the cell of a digit.
func (t *trie) unwrite(d *digit) {
	if d.built {
		t.arena.dropCell(d.cell)
		d.cell, d.built = 0, false
	}
}
