package compile

// Span is some lines in a row.
type Span struct{ Line, Lines uint32 }

// arena is the shadow of the memory: everything that the kernel's has, or will have.
type arena struct {
	lines  []Line
	buddy  buddy
	fresh  []Span // written since the last plan
	freed  []Span // not reachable once the last plan has been carried out
	spent  *int   // lines of whoever takes some now, and gives some back
	unread bool   // no packet can read what is given back
}

// newArena returns an arena whose line 0 is taken: it is what is not there, and denies.
func newArena(lines int) *arena {
	a := &arena{spent: new(int)}
	a.buddy.grow(orderOf(lines))
	a.buddy.take(1)
	a.lines = make([]Line, a.buddy.size())
	a.fresh = append(a.fresh, Span{0, 1})
	return a
}

// take returns cleared lines.
func (a *arena) take(n int) uint32 {
	head := a.buddy.take(n)
	*a.spent += 1 << orderOf(n)
	if s := a.buddy.size(); s > len(a.lines) {
		a.lines = append(a.lines, make([]Line, s-len(a.lines))...)
	}
	clear(a.lines[head : int(head)+n])
	a.fresh = append(a.fresh, Span{head, uint32(n)})
	return head
}

// drop gives lines back once the next plan has been carried out.
func (a *arena) drop(head uint32, n int) {
	if head == 0 {
		return
	}
	*a.spent -= 1 << orderOf(n)
	if a.unread {
		a.buddy.give(head, n)
		return
	}
	a.freed = append(a.freed, Span{head, uint32(n)})
}

// charge has f take lines from, and give lines back to, an account.
func (a *arena) charge(account *int, f func()) {
	before := a.spent
	a.spent = account
	f()
	a.spent = before
}

func (a *arena) word(i uint32) uint32       { return a.lines[i/LineWords][i%LineWords] }
func (a *arena) setWord(i uint32, v uint32) { a.lines[i/LineWords][i%LineWords] = v }

// release makes lines available.
func (a *arena) release(spans []Span) {
	for _, s := range spans {
		a.buddy.give(s.Line, int(s.Lines))
	}
}
