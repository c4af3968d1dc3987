package compile

// writer is what lists are written with: the shadow, the cells that rows have in common, and the
// classes and nets that all lists share.
type writer struct {
	arena   *arena
	cells   cells
	classes *classes
	nets    *nets
}

// row is what a list says about addresses that the same rules match.
type row struct {
	sum   sum // of the atoms of the list that they are in
	users int // classes, and pages
	line  uint32
	spare []uint32 // lines of cells that source ports lead to
	cells []uint32 // that are not in words of line
}

// table leads from classes to rows. Classes whose rows are equal share pages, so that what one
// list tells apart costs others next to nothing.
type table struct {
	line     uint32 // of the table
	capacity int    // pages that it has room for
	pages    []page
	uniform  map[*row]*uniform
	spent    int // lines
}

func (t *table) take(a *arena, n int) (line uint32) {
	a.charge(&t.spent, func() { line = a.take(n) })
	return line
}

func (t *table) give(a *arena, line uint32, n int) { a.charge(&t.spent, func() { a.drop(line, n) }) }

// page is the rows of some classes: one for all of them, or one for each.
type page struct {
	line uint32
	all  *row   // nil for a page of its own
	rows []*row // of such a page
}

// uniform is a page whose classes all have the same row, and how many pages of the table it is.
type uniform struct {
	line  uint32
	users int
}

// fit makes room for all classes. It returns whether the table moved. The first page never does:
// records have it, too.
func (t *table) fit(w *writer) bool {
	pages := (w.classes.count() + pageClasses - 1) / pageClasses
	if pages <= t.capacity {
		return false
	}
	a := w.arena
	capacity := max(LineWords, 1<<orderOf(pages))
	line := t.take(a, capacity/LineWords)
	for i, p := range t.pages {
		a.setWord(line*LineWords+uint32(i), p.line)
	}
	t.give(a, t.line, t.capacity/LineWords)
	t.line, t.capacity = line, capacity
	t.pages = append(t.pages, make([]page, capacity-len(t.pages))...)
	if t.pages[0].line == 0 {
		t.uniform = map[*row]*uniform{}
		t.pages[0] = page{line: t.take(a, pageLines), rows: make([]*row, pageClasses)}
		a.setWord(line*LineWords, t.pages[0].line)
	}
	return true
}

// at returns the row of a class that was put.
func (t *table) at(c class) *row {
	p := &t.pages[c/pageClasses]
	if p.all != nil {
		return p.all
	}
	return p.rows[c%pageClasses]
}

// put gives a class a row. unused is told of rows that nobody has any more.
func (t *table) put(w *writer, c class, r *row, unused func(*row)) {
	a, at, i := w.arena, c/pageClasses, c%pageClasses
	p := &t.pages[at]
	switch {
	case p.line == 0: // the first class of the page
		u := t.uniform[r]
		if u == nil {
			u = &uniform{line: t.take(a, pageLines)}
			t.uniform[r] = u
			for i := range uint32(pageClasses) {
				a.setWord(u.line*LineWords+i, r.line)
			}
		}
		u.users++
		r.users++
		*p = page{line: u.line, all: r}
		a.store(t.line*LineWords+uint32(at), p.line)
		return
	case p.all == r:
		return
	case p.all != nil:
		t.divide(w, at)
	}
	old := p.rows[i]
	r.users++
	p.rows[i] = r
	a.store(p.line*LineWords+uint32(i), r.line)
	if old != nil {
		t.release(old, unused)
	}
}

// divide gives a page of which classes had one row a line of its own. Packets find the same in it.
func (t *table) divide(w *writer, at class) {
	a, p := w.arena, &t.pages[at]
	all := p.all
	*p = page{line: t.take(a, pageLines), rows: make([]*row, pageClasses)}
	for i := range p.rows {
		a.setWord(p.line*LineWords+uint32(i), all.line)
		if c := at*pageClasses + class(i); int(c) < w.classes.count() && w.classes.all[c].used {
			p.rows[i] = all
			all.users++
		}
	}
	t.leave(a, all)
	a.store(t.line*LineWords+uint32(at), p.line)
}

// leave takes back that all classes of a page had a row.
func (t *table) leave(a *arena, r *row) {
	r.users--
	u := t.uniform[r]
	if u.users--; u.users == 0 {
		t.give(a, u.line, pageLines)
		delete(t.uniform, r)
	}
}

// forget takes the row of a class back. What shares a page with others keeps it.
func (t *table) forget(c class, unused func(*row)) {
	if at := int(c / pageClasses); at < len(t.pages) && t.pages[at].rows != nil {
		if old := t.pages[at].rows[c%pageClasses]; old != nil {
			t.pages[at].rows[c%pageClasses] = nil
			t.release(old, unused)
		}
	}
}

// prune gives back the pages of which no class is used.
func (t *table) prune(w *writer, unused func(*row)) {
	for i := range t.pages {
		p := &t.pages[i]
		if i == 0 || p.line == 0 || w.classes.anyUsed(class(i*pageClasses), pageClasses) {
			continue
		}
		if all := p.all; all != nil {
			t.leave(w.arena, all)
			if all.users == 0 {
				unused(all)
			}
		} else {
			t.give(w.arena, p.line, pageLines)
		}
		*p = page{}
	}
}

func (t *table) release(r *row, unused func(*row)) {
	if r.users--; r.users == 0 {
		unused(r)
	}
}

// drop gives everything back.
func (t *table) drop(a *arena) {
	for _, p := range t.pages {
		if p.rows != nil {
			t.give(a, p.line, pageLines)
		}
	}
	for _, u := range t.uniform {
		t.give(a, u.line, pageLines)
	}
	t.give(a, t.line, t.capacity/LineWords)
}
