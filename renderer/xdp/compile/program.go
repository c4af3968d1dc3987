package compile

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// program is one list that endpoints want, in the policy map if the image has room for it.
type program struct {
	writer  *writer
	list    *renderer.RuleList
	side    Direction    // of the list
	ports   bool         // some rule names source ports
	sources int          // so many functions of the destination port a row may have for one protocol
	about   [places]bool // some rule concerns that place of a row
	users   int          // endpoints
	always  []int        // rules that match every address, sorted
	atoms   []atom       // nets that rules name
	diff    difference   // of the class that is being added
	admission

	// The rest is of lists in the policy map.
	written bool
	slot    uint32 // of its first rule
	rows    map[sum]*row
	base    *row // row of addresses that no rule names
	table   table
}

// newProgram returns the program of a list. It is not written yet.
func newProgram(w *writer, l *renderer.RuleList, side Direction) *program {
	p := &program{writer: w, list: l, side: side, sources: 1}
	p.exempt = l.Digest() == Closed.Digest()
	numbers, n := map[api.Net]int{}, -1
	var order []api.Net
	var about [][]int // by number: rules
	for i, r := range l.All() {
		if !r.SrcPort.IsAny() {
			p.ports = true
			p.sources += 2
		}
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

// drop frees everything.
func (p *program) drop() {
	p.setWanted(false)
	for _, a := range p.atoms {
		p.writer.nets.letGo(a, &p.diff)
	}
	p.clear()
}

// clear removes the list from the policy map.
func (p *program) clear() {
	for _, r := range p.rows {
		p.dropRow(r)
	}
	p.table.drop(p.writer.arena)
	p.written, p.base, p.rows, p.table = false, nil, nil, table{}
}

// begin writes the row of addresses that no rule names, and makes room in the table for all
// classes. It reports whether the table moved, so that endpoints need new records.
func (p *program) begin() (moved bool) {
	if p.base == nil {
		p.rows = map[sum]*row{}
		p.base = p.rowOf(nil, sum{}, 0)
	}
	return p.table.fit(p.writer)
}

// add gives a class its row, which is made from the row of the class around it and the difference.
// No packet reads the changed words yet, because no address has the class.
func (p *program) add(c, around class) {
	var r *row
	switch {
	case c == 0:
		r = p.base
	case c == infraClass:
		r = p.infra()
	case p.diff.there:
		r = p.rowOf(p.table.rowOf(around), p.table.rowOf(around).sum.plus(p.diff.sum), c)
	default:
		r = p.table.rowOf(around)
	}
	if r.named++; r.named == 1 {
		p.cost += r.cost
	}
	p.table.setRow(p.writer, c, r, p.dropUnused)
	p.diff.clear()
}

// forget frees the row of a class that no prefix has any more.
func (p *program) forget(c class) {
	r := p.table.rowOf(c)
	if r.named--; r.named == 0 {
		p.cost -= r.cost
	}
	p.table.forget(c, p.dropUnused)
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
	r := &row{sum: s, rules: len(p.always)}
	if around != nil {
		r.rules = around.rules + len(p.diff.rules)
	}
	r.cost = p.costOf(r.rules)
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
	r := &row{sum: s, line: a.allocate(1)}
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
	r.line = a.allocate(1)
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
			cell = c.useCell(f)
		}
		r.cells = append(r.cells, cell)
		a.setWord(r.line*LineWords+uint32(place), cell)
	}
}

// writeBySource writes a row of some rules, for a list with source ports.
func (p *program) writeBySource(r *row, of []int) {
	a, c := p.writer.arena, &p.writer.cells
	r.line = a.allocate(1)
	for place := range places {
		var by runs
		var cells []uint32
		for i, source := range sources(p.list, of, place) {
			cells = append(cells, c.useCell(firstOf(choices(p.list, of, place, source), SlotNone, p.verdict)))
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
			r.spare = append(r.spare, a.allocate(1))
		}
		word := r.spare[len(r.spare)-1]*LineWords + uint32(i%LineWords)
		a.setWord(word, c)
		f.from(int(by[i].start), word)
	}
	r.cells = append(r.cells, cells...)
	cell := p.writer.cells.useCell(f)
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
