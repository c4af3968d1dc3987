package compile

import (
	"slices"
)

// Span is a range of lines.
type Span struct{ Line, Lines uint32 }

// chunkLines is the size in which the shadow grows: 1 MiB.
const chunkLines = 1 << 14

// arena is the shadow of the policy map: everything that the kernel's map has or will have. There
// is no shadow of lines that were never taken.
type arena struct {
	chunks      [][]Line
	buddy       buddy
	fresh       []Span // written since the last plan
	freed       []Span // unreachable once the last plan has been carried out
	stores      []Store
	unreachable bool // stored words are in lines that the current plan writes as a whole
}

// Store is an atomic change of a word.
type Store struct{ Word, Value uint32 }

// newArena returns an arena whose line 0 is taken: it means "no line", and denies.
func newArena(lines int) *arena {
	a := &arena{}
	a.buddy.grow(orderOf(lines))
	a.allocate(1)
	return a
}

// allocate returns cleared lines.
func (a *arena) allocate(n int) uint32 {
	head := a.buddy.allocate(n)
	for chunk := int(head) / chunkLines; chunk <= (int(head)+n-1)/chunkLines; chunk++ {
		if missing := chunk + 1 - len(a.chunks); missing > 0 {
			a.chunks = append(a.chunks, make([][]Line, missing)...)
		}
		if a.chunks[chunk] == nil {
			a.chunks[chunk] = make([]Line, chunkLines)
		}
	}
	s := Span{head, uint32(n)}
	_ = a.parts(s, func(_ uint32, content []Line) error { clear(content); return nil })
	a.fresh = append(a.fresh, s)
	return head
}

// parts calls f with the content of some lines, in order, until it returns an error. It skips lines
// that were never taken.
func (a *arena) parts(s Span, f func(line uint32, content []Line) error) error {
	for at, end := int(s.Line), int(s.Line+s.Lines); at < end; {
		chunk, from := at/chunkLines, at%chunkLines
		to := min(chunkLines, from+end-at)
		if chunk < len(a.chunks) && a.chunks[chunk] != nil {
			if err := f(uint32(at), a.chunks[chunk][from:to]); err != nil {
				return err
			}
		}
		at += to - from
	}
	return nil
}

// drop frees lines once the next plan has been carried out.
func (a *arena) drop(head uint32, n int) {
	if head == 0 {
		return
	}
	a.freed = append(a.freed, Span{head, uint32(n)})
}

// shrink frees the unused end of the memory, but keeps so many lines.
func (a *arena) shrink(least int) {
	before := a.buddy.size()
	if a.buddy.shrink(least); a.buddy.size() == before {
		return
	}
	if n := max(a.buddy.size()/chunkLines, 1); n < len(a.chunks) {
		clear(a.chunks[n:])
		a.chunks = a.chunks[:n]
	}
	a.fresh = slices.DeleteFunc(a.fresh, func(s Span) bool { return int(s.Line) >= a.buddy.size() })
}

// line returns a line that was taken.
func (a *arena) line(i uint32) *Line { return &a.chunks[i/chunkLines][i%chunkLines] }

func (a *arena) word(i uint32) uint32       { return a.line(i / LineWords)[i%LineWords] }
func (a *arena) setWord(i uint32, v uint32) { a.line(i / LineWords)[i%LineWords] = v }

// store changes a word. The change is a step of the plan unless the plan writes the whole line.
func (a *arena) store(word, value uint32) {
	a.setWord(word, value)
	if !a.unreachable {
		a.stores = append(a.stores, Store{word, value})
	}
}

// release makes lines available.
func (a *arena) release(spans []Span) {
	for _, s := range spans {
		a.buddy.give(s.Line, int(s.Lines))
	}
}
