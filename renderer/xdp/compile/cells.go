package compile

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// cells interns the functions of rows: equal functions have one cell, which all rows share. A
// function with a node is a tree of two levels; functions share equal parts of it.
type cells struct {
	arena  *arena
	seed   maphash.Seed
	byHash map[uint64]uint32
	uses   map[uint32]cellUse // by cell
	buf    []byte
}

type cellUse struct {
	n    int
	hash uint64
}

func newCells(a *arena) cells {
	return cells{arena: a, seed: maphash.MakeSeed(), byHash: map[uint64]uint32{}, uses: map[uint32]cellUse{}}
}

// hold adds a use of a cell, and returns the cell.
func (c *cells) hold(cell uint32) uint32 {
	if cell&kindMask != kindLeaf {
		u := c.uses[cell]
		u.n++
		c.uses[cell] = u
	}
	return cell
}

// letGo removes a use of a cell. It frees the cell after the last one.
func (c *cells) letGo(cell uint32) {
	if cell&kindMask == kindLeaf {
		return
	}
	u := c.uses[cell]
	if u.n--; u.n > 0 {
		c.uses[cell] = u
		return
	}
	delete(c.uses, cell)
	if c.byHash[u.hash] == cell {
		delete(c.byHash, u.hash)
	}
	if cell&kindMask == kindNode {
		for key := range uint32(256) {
			c.letGo(c.arena.word(cell&payloadMask*LineWords + key))
		}
	}
	c.arena.dropByte(cell)
}

// useCell returns the cell of a function of 16 bits, and adds a use.
func (c *cells) useCell(f runs) uint32 {
	if len(f) <= bigRuns {
		return c.list(f)
	}
	var parts [256]uint32
	var buf [256]run
	for high := range parts {
		parts[high] = c.putByte(f.cut(high, buf[:0]))
	}
	return c.node(&parts)
}

// putByte returns the cell of a function of 8 bits, and adds a use.
func (c *cells) putByte(f runs) uint32 {
	if len(f) <= bigRuns {
		return c.list(f)
	}
	var values [256]uint32
	for i, r := range f {
		end := 256
		if i+1 < len(f) {
			end = int(f[i+1].start)
		}
		for key := int(r.start); key < end; key++ {
			values[key] = r.value
		}
	}
	return c.node(&values)
}

// list returns the cell of a function of few runs, and adds a use.
func (c *cells) list(f runs) uint32 {
	if len(f) == 1 {
		return kindLeaf | f[0].value
	}
	c.buf = c.buf[:0]
	for _, r := range f {
		c.buf = binary.LittleEndian.AppendUint16(c.buf, r.start)
		c.buf = binary.LittleEndian.AppendUint32(c.buf, r.value)
	}
	hash := maphash.Bytes(c.seed, c.buf)
	var buf [bigRuns]run
	if cell, ok := c.byHash[hash]; ok && cell&kindMask != kindNode && slices.Equal(c.arena.list(cell, buf[:0]), f) {
		return c.hold(cell)
	}
	return c.add(c.arena.putList(f), hash)
}

// node returns the cell of a node with some parts, and adds a use. It takes over the caller's uses
// of the parts.
func (c *cells) node(parts *[256]uint32) uint32 {
	c.buf = c.buf[:0]
	for _, p := range parts {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, p)
	}
	hash := maphash.Bytes(c.seed, c.buf)
	if cell, ok := c.byHash[hash]; ok && c.same(cell, parts) {
		for _, p := range parts {
			c.letGo(p)
		}
		return c.hold(cell)
	}
	line := c.arena.allocate(nodeLines)
	for i, p := range parts {
		c.arena.setWord(line*LineWords+uint32(i), p)
	}
	return c.add(kindNode|line, hash)
}

func (c *cells) same(cell uint32, parts *[256]uint32) bool {
	if cell&kindMask != kindNode {
		return false
	}
	for i, p := range parts {
		if c.arena.word(cell&payloadMask*LineWords+uint32(i)) != p {
			return false
		}
	}
	return true
}

// add registers a new cell.
func (c *cells) add(cell uint32, hash uint64) uint32 {
	c.byHash[hash] = cell // a different cell with the same hash is not shared any more
	c.uses[cell] = cellUse{1, hash}
	return cell
}

// list appends the function of a cell that is not a node.
func (a *arena) list(cell uint32, out runs) runs {
	word := cell & payloadMask * LineWords
	switch cell & kindMask {
	case kindSmall:
		value := uint32(0)
		for i := range uint32(smallRuns) {
			value ^= a.word(word + smallValue + i)
			out.from(int(uint16(a.word(word+smallStart+i/2)>>(16*(i%2)))), value) // unused runs repeat the last value
		}
	case kindBig:
		for i := range uint32(bigRuns) {
			out.from(int(uint16(a.word(word+i/2)>>(16*(i%2)))), a.word(word+LineWords+i))
		}
	default:
		out.from(0, cell)
	}
	return out
}

// over returns the cell of the function that has, for every key, the value of the earlier rule:
// that of a cell or that of f. It adds a use.
func (c *cells) over(cell uint32, f runs) uint32 {
	if cell&kindMask != kindNode {
		var buf [bigRuns]run
		return c.useCell(overlay(c.arena.list(cell, buf[:0]), f, nil))
	}
	var parts [256]uint32
	var of, has, both [256]run
	for high := range parts {
		part := c.arena.word(cell&payloadMask*LineWords + uint32(high))
		cut := f.cut(high, of[:0])
		if len(cut) == 1 && cut[0].value == SlotNone {
			parts[high] = c.hold(part)
		} else {
			parts[high] = c.putByte(overlay(c.arena.byteOf(part, has[:0]), cut, both[:0]))
		}
	}
	if list, few := c.joined(&parts); few {
		for _, p := range parts {
			c.letGo(p)
		}
		return c.list(list)
	}
	return c.node(&parts)
}

// joined returns the function of some parts if it has few runs, so that equal functions have equal
// cells.
func (c *cells) joined(parts *[256]uint32) (list runs, few bool) {
	var buf [bigRuns]run
	for high, p := range parts {
		if p&kindMask == kindNode {
			return nil, false
		}
		for _, r := range c.arena.list(p, buf[:0]) {
			list.from(high<<8+int(r.start), r.value)
		}
		if len(list) > bigRuns {
			return nil, false
		}
	}
	return list, true
}

// byteOf appends the function of 8 bits of a cell.
func (a *arena) byteOf(cell uint32, out runs) runs {
	if cell&kindMask != kindNode {
		return a.list(cell, out)
	}
	for key := range uint32(256) {
		out.from(int(key), a.word(cell&payloadMask*LineWords+key))
	}
	return out
}

// overlay appends the function that has, for every key, the value of the earlier rule.
func overlay(f, g, out runs) runs {
	for i, j := 0, 0; ; {
		at := max(f[i].start, g[j].start)
		value := f[i].value
		if isEarlier(g[j].value, value) {
			value = g[j].value
		}
		out.from(int(at), value)
		switch {
		case i+1 == len(f) && j+1 == len(g):
			return out
		case j+1 == len(g) || i+1 < len(f) && f[i+1].start < g[j+1].start:
			i++
		case i+1 == len(f) || f[i+1].start > g[j+1].start:
			j++
		default:
			i, j = i+1, j+1
		}
	}
}

// isEarlier reports whether the rule of a comes before the rule of b. A value without a rule comes
// last.
func isEarlier(a, b uint32) bool { return a&SlotMask-1 < b&SlotMask-1 }
