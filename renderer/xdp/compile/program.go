package compile

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// program is one list in the policy map. Endpoints with equal lists share it.
type program struct {
	writer *writer
	list   *renderer.RuleList
	side   Direction    // of the list
	ports  bool         // some rule names source ports
	about  [places]bool // some rule concerns that place of a row
	users  int          // endpoints
	slot   uint32       // of its first rule
	always []int        // rules that match every address, sorted
	atoms  []atom       // nets that rules name
	rows   map[sum]*row
	base   *row // row of addresses that no rule names
	table  table
	diff   difference // of the class that is being added
	writing
	account
}

// writing is the progress of a list that has no rows of some classes yet. Packets do not read it.
type writing struct {
	fresh   bool
	begun   uint64 // number of the plan that began to write it; 0 before
	atomsIn int    // how many of its atoms are known to be in the tries
	has     []bool // by class: it has a row
}

// hasRow reports whether a class has its row.
func (w *writing) hasRow(c class) bool {
	if missing := int(c) + 1 - len(w.has); missing > 0 {
		w.has = append(w.has, make([]bool, missing)...)
	}
	return w.has[c]
}

// newProgram returns the program of a list whose counters begin at a slot. It is not written yet.
func newProgram(w *writer, l *renderer.RuleList, side Direction, slot uint32) *program {
	p := &program{writer: w, list: l, side: side, slot: slot, rows: map[sum]*row{}}
	p.exempt, p.erase, p.writing = l.Digest() == Closed.Digest(), p.clear, writing{fresh: true}
	numbers, n := map[api.Net]int{}, -1
	var order []api.Net
	var about [][]int // by number: rules
	for i, r := range l.All() {
		p.ports = p.ports || !r.SrcPort.IsAny()
		for place := range p.about {
			p.about[place] = p.about[place] || r.Protocol == api.AnyProtocol || place == placeOf(r.Protocol)
		}
		peer := p.peer(r)
		if peer.IsAny() {
			p.always = append(p.always, i)
			continue
		}
		if n < 0 || peer != order[n] { // rules about a peer mostly follow each other
			known := false
			if n, known = numbers[peer]; !known {
				n = len(order)
				numbers[peer], order, about = n, append(order, peer), append(about, nil)
			}
		}
		about[n] = append(about[n], i)
	}
	for n, peer := range order {
		p.atoms = append(p.atoms, w.nets.name(peer, naming{&p.diff, about[n]}))
	}
	return p
}

// peer returns the net of a rule's peer.
func (p *program) peer(r api.ContivRule) api.Net {
	if p.side == ToPod {
		return r.Src
	}
	return r.Dst
}

// drop frees everything but the counters.
func (p *program) drop() {
	for _, a := range p.atoms {
		p.writer.nets.letGo(a, &p.diff)
	}
	p.clear()
}

// clear frees the written lines. If the list is stopped before packets read it, the lines can be
// reused at once: cells hold slots of their list, so no other list shares them.
func (p *program) clear() {
	a := p.writer.arena
	a.unread = p.fresh && p.stopped && p.begun == a.plan // lines of earlier plans can be in stores of this one
	a.charge(&p.spent, func() {
		for _, r := range p.rows {
			p.dropRow(r)
		}
		p.table.drop(a)
	})
	a.unread = false
	clear(p.rows)
	clear(p.has)
	p.base, p.table = nil, table{}
}

// begin writes the row of addresses that no rule names, and makes room in the table for all
// classes. It reports whether the table moved, so that endpoints need new records.
func (p *program) begin() (moved bool) {
	p.writer.arena.charge(&p.spent, func() {
		if p.base == nil {
			p.base = p.rowOf(nil, sum{}, 0)
		}
		moved = p.table.fit(p.writer)
	})
	return moved
}

// add gives a class its row, which is made from the row of the class around it and the difference.
// No packet reads the changed words yet, because no address has the class. It returns how many
// lines it took.
func (p *program) add(c, around class) (lines int) {
	if p.stopped {
		p.diff.clear()
		return 0
	}
	before := p.spent
	p.writer.arena.charge(&p.spent, func() {
		var r *row
		switch {
		case c == 0:
			r = p.base
		case c == infraClass:
			r = p.infra()
		case p.diff.there:
			r = p.rowOf(p.table.at(around), p.table.at(around).sum.plus(p.diff.sum), c)
		default:
			r = p.table.at(around)
		}
		p.table.put(p.writer, c, r, p.dropUnused)
	})
	p.diff.clear()
	return max(p.spent-before, 0)
}

// forget frees the row of a class that no address has any more.
func (p *program) forget(c class) {
	if int(c) < len(p.has) {
		p.has[c] = false
	}
	p.writer.arena.charge(&p.spent, func() { p.table.forget(c, p.dropUnused) })
}

// prune frees the pages of unused classes.
func (p *program) prune() {
	p.writer.arena.charge(&p.spent, func() { p.table.prune(p.writer, p.dropUnused) })
}

// dropUnused frees a row that no class has. The base row stays, because other rows are made from
// it.
func (p *program) dropUnused(r *row) {
	if r != p.base {
		delete(p.rows, r.sum)
		p.dropRow(r)
	}
}

// rowOf returns the row of a class whose atoms have a sum: an existing row, or a new one from the
// row of the class around it and the rules of the difference.
func (p *program) rowOf(around *row, s sum, c class) *row {
	if r := p.rows[s]; r != nil {
		return r
	}
	r := &row{sum: s}
	switch {
	case p.ports:
		p.writeBySource(r, p.matching(c))
	case around == nil:
		p.write(r, nil, p.always)
	default:
		slices.Sort(p.diff.rules)
		p.write(r, around, p.diff.rules)
	}
	p.rows[s] = r
	return r
}

// matching returns the rules that match the addresses of a class.
func (p *program) matching(c class) []int {
	out := slices.Clone(p.always)
	for classes := p.writer.classes; c != 0; c = classes.all[c].parent {
		for _, a := range classes.owns.sets[classes.all[c].own].atoms {
			out = append(out, p.writer.nets.rules(a, &p.diff)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// This row has the addresses that may talk to every pod. No set of a list's atoms has its sum.
func (p *program) infra() *row {
	s := p.writer.classes.all[infraClass].sum
	if r := p.rows[s]; r != nil {
		return r
	}
	a := p.writer.arena
	r := &row{sum: s, line: a.take(1)}
	for place := range uint32(places) {
		cell := kindLeaf | Allow | SlotInfra
		if p.ports {
			cell = p.bySource(r, []run{{0, cell}}, []uint32{cell})
		}
		a.setWord(r.line*LineWords+place, cell)
	}
	p.rows[s] = r
	return r
}

// verdict returns the verdict of a rule, with its slot.
func (p *program) verdict(rule int) uint32 {
	r, v := p.list.At(rule), p.slot+uint32(rule)
	if r.Action == api.Permit {
		v |= Allow
	}
	if p.side == ToPod && r.Src == api.SetNet(api.NodeSet) {
		v |= OwnNode
	}
	return v
}

// write writes a row that combines another row and some rules; the earlier rule decides.
func (p *program) write(r, around *row, of []int) {
	a, c := p.writer.arena, &p.writer.cells
	r.line = a.take(1)
	inLine := false
	for place := range places {
		f := runs{{0, SlotNone}}
		if p.about[place] {
			f = firstOf(choices(p.list, of, place, 0), SlotNone, p.verdict)
		}
		cell := uint32(SlotNone)
		if around != nil {
			cell = a.word(around.line*LineWords + uint32(place))
		}
		says := len(f) > 1 || f[0].value != SlotNone
		if cell&kindMask == kindNode {
			if says {
				cell = c.over(cell, f)
			} else {
				c.hold(cell)
			}
		} else {
			var buf [bigRuns]run
			if f = overlay(a.list(cell, buf[:0]), f, nil); len(f) > 1 && len(f) <= smallRuns && !inLine {
				inLine = true
				a.putSmall(r.line, f)
				a.setWord(r.line*LineWords+uint32(place), kindSmall|r.line)
				continue
			}
			cell = c.put(f)
		}
		r.cells = append(r.cells, cell)
		a.setWord(r.line*LineWords+uint32(place), cell)
	}
}

// writeBySource writes a row of some rules, for a list with source ports.
func (p *program) writeBySource(r *row, of []int) {
	a, c := p.writer.arena, &p.writer.cells
	r.line = a.take(1)
	for place := range places {
		var by runs
		var cells []uint32
		for i, source := range sources(p.list, of, place) {
			cells = append(cells, c.put(firstOf(choices(p.list, of, place, source), SlotNone, p.verdict)))
			by = append(by, run{source, uint32(i)})
		}
		a.setWord(r.line*LineWords+uint32(place), p.bySource(r, by, cells))
	}
}

// bySource writes a function of the source port whose values are the indexes of words that hold
// cells.
func (p *program) bySource(r *row, by runs, cells []uint32) uint32 {
	a := p.writer.arena
	var f runs
	for i, c := range cells {
		if i%LineWords == 0 {
			r.spare = append(r.spare, a.take(1))
		}
		word := r.spare[len(r.spare)-1]*LineWords + uint32(i%LineWords)
		a.setWord(word, c)
		f.from(int(by[i].start), word)
	}
	r.cells = append(r.cells, cells...)
	cell := p.writer.cells.put(f)
	r.cells = append(r.cells, cell)
	return cell
}

func (p *program) dropRow(r *row) {
	a := p.writer.arena
	for _, c := range r.cells {
		p.writer.cells.letGo(c)
	}
	for _, line := range r.spare {
		a.drop(line, 1)
	}
	a.drop(r.line, 1)
}
