package compile

import (
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// program is one list in memory. Endpoints with equal lists share it.
type program struct {
	image    *Image
	list     *renderer.RuleList
	side     Direction // whose lists name that side's peer
	ports    bool      // some rule names source ports
	users    int       // endpoints
	slot     uint32    // of its first rule
	always   []int     // rules for every address, sorted
	byAtom   map[atom][]int
	rows     map[string]*row // by the rules that matter
	rowOf    []*row          // by class
	table    uint32          // line of the page table
	capacity int             // pages that it has room for
	pages    []uint32        // lines
}

// row is what a list says about addresses that the same rules match.
type row struct {
	key   string
	users int // classes
	line  uint32
	spare []uint32 // lines of cells that source ports lead to
	cells []uint32 // that are not in words of line
}

// newProgram writes a list for all classes that there are.
func (m *Image) newProgram(l *renderer.RuleList, side Direction) *program {
	p := &program{image: m, list: l, side: side, byAtom: map[atom][]int{}, rows: map[string]*row{}}
	p.slot = m.slots.take(len(l.Rules()))
	for i, r := range l.Rules() {
		p.ports = p.ports || !r.SrcPort.IsAny()
		if n := p.peer(r); n.IsAny() {
			p.always = append(p.always, i)
		} else {
			a := m.nets.hold(n)
			p.byAtom[a] = append(p.byAtom[a], i)
		}
	}
	return p
}

// peer returns the side of a rule that is not the pod's.
func (p *program) peer(r api.ContivRule) api.Net {
	if p.side == ToPod {
		return r.Src
	}
	return r.Dst
}

// drop gives everything back.
func (p *program) drop() {
	a := &p.image.arena
	for net, rules := range p.byAtom {
		for range rules {
			p.image.nets.letGo(net)
		}
	}
	for _, r := range p.rows {
		p.dropRow(r)
	}
	for _, line := range p.pages {
		if line != 0 {
			a.drop(line, pageLines)
		}
	}
	a.drop(p.table, p.capacity/LineWords)
	rules := len(p.list.Rules())
	p.image.freedSlots = append(p.image.freedSlots, Span{p.slot, uint32(rules)})
}

// fit makes room in the page table for all classes. It returns whether the table moved. The first
// page never does: records have it, too.
func (p *program) fit() bool {
	pages := (p.image.classes.count() + pageClasses - 1) / pageClasses
	if pages <= p.capacity {
		return false
	}
	a := &p.image.arena
	capacity := max(LineWords, 1<<orderOf(pages))
	table := a.take(capacity / LineWords)
	for i, line := range p.pages {
		a.setWord(table*LineWords+uint32(i), line)
	}
	a.drop(p.table, p.capacity/LineWords)
	p.table, p.capacity = table, capacity
	p.pages = append(p.pages, make([]uint32, capacity-len(p.pages))...)
	if p.pages[0] == 0 {
		p.pages[0] = a.take(pageLines)
		a.setWord(table*LineWords, p.pages[0])
	}
	return true
}

// tell gives a class its row. The words it changes are read by nobody yet, because no
// address has the class.
func (p *program) tell(c class) {
	a := &p.image.arena
	for len(p.rowOf) <= int(c) {
		p.rowOf = append(p.rowOf, nil)
	}
	r := p.rowFor(c)
	r.users++
	p.rowOf[c] = r
	page := int(c) / pageClasses
	if p.pages[page] == 0 {
		p.pages[page] = a.take(pageLines)
		p.image.store(p.table*LineWords+uint32(page), p.pages[page])
	}
	p.image.store(p.pages[page]*LineWords+uint32(c)%pageClasses, r.line)
}

// forget takes back what a class had, which no address has any more.
func (p *program) forget(c class) {
	if int(c) >= len(p.rowOf) || p.rowOf[c] == nil {
		return
	}
	r := p.rowOf[c]
	p.rowOf[c] = nil
	if r.users--; r.users == 0 {
		delete(p.rows, r.key)
		p.dropRow(r)
	}
}

// rowFor returns the row for a class.
func (p *program) rowFor(c class) *row {
	atoms := p.image.classes.sets[c]
	infra := len(atoms) > 0 && atoms[0] == infraAtom
	var of []int
	if !infra {
		of = p.matching(atoms)
	}
	key := rowKey(infra, of)
	if r := p.rows[key]; r != nil {
		return r
	}
	r := p.write(infra, of)
	r.key = key
	p.rows[key] = r
	return r
}

// matching returns the rules whose net holds the addresses that are in all atoms.
func (p *program) matching(atoms []atom) []int {
	out := p.always
	for _, a := range atoms {
		if of := p.byAtom[a]; of != nil {
			out = slices.Concat(out, of)
		}
	}
	if len(out) > len(p.always) {
		slices.Sort(out)
	}
	return out
}

func rowKey(infra bool, of []int) string {
	if infra {
		return "infra"
	}
	key := make([]byte, 0, 4*len(of))
	for _, i := range of {
		key = binary.LittleEndian.AppendUint32(key, uint32(i))
	}
	return string(key)
}

// write writes the row of some rules.
func (p *program) write(infra bool, of []int) *row {
	a := &p.image.arena
	r := &row{line: a.take(1)}
	inLine := false
	for place := range places {
		var cell uint32
		if infra {
			cell = kindLeaf | Allow | SlotInfra
			if p.ports {
				cell = p.bySource(r, []run{{0, cell}}, []uint32{cell})
			}
		} else {
			cell = p.cell(r, place, of, &inLine)
		}
		a.setWord(r.line*LineWords+uint32(place), cell)
	}
	return r
}

// cell writes what rules say at a place of a row.
func (p *program) cell(r *row, place int, of []int, inLine *bool) uint32 {
	a := &p.image.arena
	rules := p.list.Rules()
	verdict := func(rule int) uint32 {
		v := p.slot + uint32(rule)
		if rules[rule].Action == api.Permit {
			v |= Allow
		}
		if p.side == ToPod && rules[rule].Src == api.SetNet(api.NodeSet) {
			v |= OwnNode
		}
		return v
	}
	if !p.ports {
		f := firstOf(choices(rules, of, place, 0), SlotNone, verdict)
		if len(f) > 1 && len(f) <= smallRuns && !*inLine {
			*inLine = true
			a.putSmall(r.line, f)
			return kindSmall | r.line
		}
		cell := a.put(f)
		r.cells = append(r.cells, cell)
		return cell
	}
	var by runs
	var cells []uint32
	for i, source := range sources(rules, of, place) {
		cells = append(cells, a.put(firstOf(choices(rules, of, place, source), SlotNone, verdict)))
		by = append(by, run{source, uint32(i)})
	}
	return p.bySource(r, by, cells)
}

// bySource writes a function of the source port whose values are the words of cells.
func (p *program) bySource(r *row, by runs, cells []uint32) uint32 {
	a := &p.image.arena
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
	cell := a.put(f)
	r.cells = append(r.cells, cell)
	return cell
}

func (p *program) dropRow(r *row) {
	a := &p.image.arena
	for _, c := range r.cells {
		a.dropCell(c, r.line)
	}
	for _, line := range r.spare {
		a.drop(line, 1)
	}
	a.drop(r.line, 1)
}
