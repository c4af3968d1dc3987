package compile

// writer has what all lists share: the shadow, the interned cells of rows, the classes, and the
// nets.
type writer struct {
	arena   *arena
	cells   cells
	classes *classes
	nets    *nets
}

// row has the verdicts of a list about addresses that the same rules match.
type row struct {
	sum   sum // of the list's atoms that hold the addresses
	rules int // that match them
	cost  int // see costOf
	users int // number of classes and pages
	named int // number of classes that prefixes have
	line  uint32
	spare []uint32 // lines with cells by source port
	cells []uint32 // interned cells, not those within line
}

// table maps classes to rows. Pages whose classes all have the same row are shared, so classes that
// one list distinguishes cost other lists next to nothing.
type table struct {
	line     uint32 // of the table
	capacity int    // capacity in pages
	pages    []page
	uniform  map[*row]*uniform
}

// page has the rows of some classes: one row for all of them, or one for each.
type page struct {
	line uint32
	all  *row   // of a shared page; else nil
	rows []*row // of a page that is not shared
}

// uniform is a shared page: all its classes have the same row.
type uniform struct {
	line  uint32
	users int
}

// fit makes room for all classes, and reports whether the table moved. The first page never moves,
// because records hold its line.
func (t *table) fit(w *writer) bool {
	pages := (w.classes.count() + pageClasses - 1) / pageClasses
	if pages <= t.capacity {
		return false
	}
	a := w.arena
	capacity := max(LineWords, 1<<orderOf(pages))
	line := a.allocate(capacity / LineWords)
	for i, p := range t.pages {
		a.setWord(line*LineWords+uint32(i), p.line)
	}
	a.drop(t.line, t.capacity/LineWords)
	t.line, t.capacity = line, capacity
	t.pages = append(t.pages, make([]page, capacity-len(t.pages))...)
	if t.pages[0].line == 0 {
		t.uniform = map[*row]*uniform{}
		t.pages[0] = page{line: a.allocate(pageLines), rows: make([]*row, pageClasses)}
		a.setWord(line*LineWords, t.pages[0].line)
	}
	return true
}

// rowOf returns the row of a class.
func (t *table) rowOf(c class) *row {
	p := &t.pages[c/pageClasses]
	if p.all != nil {
		return p.all
	}
	return p.rows[c%pageClasses]
}

// setRow sets the row of a class. It calls unused with a row that lost its last user.
func (t *table) setRow(w *writer, c class, r *row, unused func(*row)) {
	a, at, i := w.arena, c/pageClasses, c%pageClasses
	p := &t.pages[at]
	switch {
	case p.line == 0: // the first class of the page
		u := t.uniform[r]
		if u == nil {
			u = &uniform{line: a.allocate(pageLines)}
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

// divide replaces a shared page by one of its own, with the same content.
func (t *table) divide(w *writer, at class) {
	a, p := w.arena, &t.pages[at]
	all := p.all
	*p = page{line: a.allocate(pageLines), rows: make([]*row, pageClasses)}
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

// leave removes a user of a shared page.
func (t *table) leave(a *arena, r *row) {
	r.users--
	u := t.uniform[r]
	if u.users--; u.users == 0 {
		a.drop(u.line, pageLines)
		delete(t.uniform, r)
	}
}

// forget removes the row of a class. A class of a shared page keeps its row.
func (t *table) forget(c class, unused func(*row)) {
	if at := int(c / pageClasses); at < len(t.pages) && t.pages[at].rows != nil {
		if old := t.pages[at].rows[c%pageClasses]; old != nil {
			t.pages[at].rows[c%pageClasses] = nil
			t.release(old, unused)
		}
	}
}

// prune gives back a page of which no class is used. The first one stays.
func (t *table) prune(a *arena, i class, unused func(*row)) {
	if i == 0 || int(i) >= len(t.pages) || t.pages[i].line == 0 {
		return
	}
	p := &t.pages[i]
	if all := p.all; all != nil {
		if t.leave(a, all); all.users == 0 {
			unused(all)
		}
	} else {
		a.drop(p.line, pageLines)
	}
	*p = page{}
}

func (t *table) release(r *row, unused func(*row)) {
	if r.users--; r.users == 0 {
		unused(r)
	}
}

// drop frees all lines of the table.
func (t *table) drop(a *arena) {
	for _, p := range t.pages {
		if p.rows != nil {
			a.drop(p.line, pageLines)
		}
	}
	for _, u := range t.uniform {
		a.drop(u.line, pageLines)
	}
	a.drop(t.line, t.capacity/LineWords)
}
