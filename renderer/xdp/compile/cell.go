package compile

// run is the start of a range of keys with the same value.
type run struct {
	start uint16
	value uint32
}

// runs is a total function of a 16-bit key. The runs are sorted, the first starts at 0, and
// neighbours differ.
type runs []run

// from sets the value of the function from a key on. Keys must not decrease.
func (f *runs) from(key int, value uint32) {
	l := *f
	if n := len(l); n > 0 && int(l[n-1].start) == key {
		l = l[:n-1]
	}
	if n := len(l); n == 0 || l[n-1].value != value {
		l = append(l, run{uint16(key), value})
	}
	*f = l
}

// cut returns the function of the low byte for one high byte, appended to a buffer.
func (f runs) cut(high int, buf runs) runs {
	low, end := uint16(high<<8), high<<8+0x100
	i := 0
	for n := len(f); i < n; { // binary search for the last run that starts no later
		m := int(uint(i+n) / 2)
		if f[m].start <= low {
			i = m + 1
		} else {
			n = m
		}
	}
	buf = append(buf, run{0, f[i-1].value})
	for ; i < len(f) && int(f[i].start) < end; i++ {
		buf = append(buf, run{f[i].start - low, f[i].value})
	}
	return buf
}

// writeCell writes a function of 16 bits and returns its cell.
func (a *arena) writeCell(f runs) uint32 {
	if len(f) <= bigRuns {
		return a.putList(f)
	}
	node := a.allocate(nodeLines)
	var buf [256]run
	for high := range 256 {
		cell := a.putByte(f.cut(high, buf[:0]))
		a.setWord(node*LineWords+uint32(high), cell)
	}
	return kindNode | node
}

// putByte writes a function of 8 bits.
func (a *arena) putByte(f runs) uint32 {
	if len(f) <= bigRuns {
		return a.putList(f)
	}
	node := a.allocate(nodeLines)
	for i, r := range f {
		end := 256
		if i+1 < len(f) {
			end = int(f[i+1].start)
		}
		for key := int(r.start); key < end; key++ {
			a.setWord(node*LineWords+uint32(key), r.value)
		}
	}
	return kindNode | node
}

// putList writes a function of few runs.
func (a *arena) putList(f runs) uint32 {
	switch {
	case len(f) == 1:
		return kindLeaf | f[0].value
	case len(f) <= smallRuns:
		line := a.allocate(1)
		a.putSmall(line, f)
		return kindSmall | line
	}
	line := a.allocate(bigLines)
	last := f[len(f)-1]
	for i := range bigRuns {
		r := run{unusedStart, last.value}
		if i < len(f) {
			r = f[i]
		}
		a.setStart(line*LineWords, i, r.start)
		a.setWord((line+1)*LineWords+uint32(i), r.value)
	}
	return kindBig | line
}

// putSmall writes up to 8 runs to their words of a line. Each value is stored as its difference
// (XOR) to the value before.
func (a *arena) putSmall(line uint32, f runs) {
	before := uint32(0)
	for i := range smallRuns {
		r := run{unusedStart, f[len(f)-1].value}
		if i < len(f) {
			r = f[i]
		}
		a.setStart(line*LineWords+smallStart, i, r.start)
		a.setWord(line*LineWords+smallValue+uint32(i), r.value^before)
		before = r.value
	}
}

// setStart writes the i-th start of a list of starts that begins at a word.
func (a *arena) setStart(word uint32, i int, start uint16) {
	w := word + uint32(i/2)
	shift := 16 * (i % 2)
	a.setWord(w, a.word(w)&^(0xffff<<shift)|uint32(start)<<shift)
}

// dropCell frees the lines of a cell of a function of 16 bits.
func (a *arena) dropCell(cell uint32) {
	if cell&kindMask == kindNode {
		node := cell & payloadMask * LineWords
		for key := range uint32(256) {
			a.dropByte(a.word(node + key))
		}
	}
	a.dropByte(cell)
}

// dropByte frees the lines of one cell, but not those of cells in its node.
func (a *arena) dropByte(cell uint32) {
	line := cell & payloadMask
	switch cell & kindMask {
	case kindSmall:
		a.drop(line, 1)
	case kindBig:
		a.drop(line, bigLines)
	case kindNode:
		a.drop(line, nodeLines)
	}
}
