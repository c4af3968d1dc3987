package compile

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Budget bounds how many lines lists may take, the addresses that they name included. Zero values
// do not.
type Budget struct {
	Lines int // of all owners together
	Share int // of one owner
}

// Refusal is a direction of an endpoint that is closed, because its list is one of those that make
// its owner take more than its share.
type Refusal struct {
	ID    uint32
	Dir   Direction
	Owner string
	Share int // lines that the owner may take
}

// Closed denies everything. It stands for a list that is refused.
var Closed = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// budget is what owners take of a Budget, while a plan is made.
//
// An owner that takes more than its share may take an equal part of it with each of its lists; those
// that take more are refused. While all owners together take too much, the share is halved, so that
// the largest are the first. Both depend on what is wanted and on nothing else: a list is refused
// as soon as it is known to be larger than what it may be, however large it would become.
type budget struct {
	Budget
	share  int // of an owner in this plan
	owners map[string]*owner
	taken  int  // lines by lists since it was looked at
	swept  bool // nothing counts that no address has any more
	early  bool // rows do not count yet
	begun  bool // owners are those of what is being built
}

// owner is the lists of the endpoints that one owner has.
type owner struct {
	lists map[*program]bool
	most  int // lines that all of them take, or more
	over  bool
}

// quota is how many lines each list of an owner may take.
func (o *owner) quota(share int) int { return share / len(o.lists) }

// begin finds out whose lists there are.
func (b *budget) begin(m *Image) {
	b.share, b.taken, b.swept, b.begun, b.owners = b.Share, 0, false, true, map[string]*owner{}
	for _, p := range m.programs {
		p.owners, p.reach = p.owners[:0], 0
	}
	for _, g := range m.rejected {
		g.owners, g.stopped = g.owners[:0], false
	}
	for _, e := range m.ends {
		o := b.owners[e.Owner]
		if o == nil {
			o = &owner{lists: map[*program]bool{}}
			b.owners[e.Owner] = o
		}
		for d := range e.programs {
			if p := e.wanted(d); p != nil && !o.lists[p] {
				o.lists[p] = true
				p.owners = append(p.owners, o)
			}
		}
	}
	for _, p := range m.programs {
		for _, a := range p.atoms {
			p.reach += m.nets.size(a) / m.nets.users[a]
		}
	}
}

// check looks at the whole when lists took some part of what they may since it was looked at.
// With told, no class is being told.
func (b *budget) check(m *Image, part int, told bool) {
	if !b.isSet() || b.taken <= max(b.Lines, b.Share)/part {
		return
	}
	if told {
		b.sweep(m, 1)
	}
	b.settle(m)
}

func (b *budget) isSet() bool { return b.Budget != Budget{} }

// settle stops the lists that may not become as large as they are.
func (b *budget) settle(m *Image) {
	b.taken = 0
	for b.over(m, 1) {
		if b.stop(m); b.Lines == 0 || m.wanted() <= b.Lines || b.share == 1 {
			return
		}
		if b.share == 0 || b.share > b.Lines {
			b.share = b.Lines
		}
		b.share = max(b.share/2, 1)
	}
}

// sweep frees what no address has any more, where it could be what makes lists too large. It must not
// be called while a class is told.
func (b *budget) sweep(m *Image, part int) {
	if b.swept || !b.over(m, part) {
		return
	}
	b.swept = true
	m.sweep()
	for _, o := range b.owners {
		o.most = 0
	}
}

// over counts what owners take, and returns whether that is more than a part of what they may.
func (b *budget) over(m *Image, part int) (over bool) {
	for _, o := range b.owners {
		lines := 0
		for p := range o.lists {
			lines += p.cost() / len(p.owners)
		}
		o.most = max(o.most, lines)
		o.over = b.share > 0 && o.most > b.share
		over = over || b.share > 0 && o.most > b.share/part
	}
	return over || b.Lines > 0 && m.wanted() > b.Lines/part
}

// wanted is how many lines all lists take that are not stopped.
func (m *Image) wanted() (lines int) {
	for _, p := range m.programs {
		if !p.stopped {
			lines += p.cost()
		}
	}
	for _, g := range m.rejected {
		if !g.stopped {
			lines += g.cost()
		}
	}
	return lines
}

// stop stops lists that all of their owners are refused.
func (b *budget) stop(m *Image) {
	for _, p := range m.programs {
		if !p.stopped && b.refusedBy(p.owners, p) {
			p.stop()
		}
	}
	for _, g := range m.rejected {
		g.stopped = g.stopped || b.refusedBy(g.owners, g)
	}
}

// refusedBy reports whether a list is refused to all of its owners.
func (b *budget) refusedBy(owners []*owner, p *program) bool {
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(o *owner) bool { return !b.refuses(o, p) })
}

func (b *budget) refuses(o *owner, p *program) bool {
	return o.over && p.list.Digest() != Closed.Digest() && p.cost() > o.quota(b.share)
}

// cost is how many lines a list takes, or took until it was stopped: one for each address that it
// names, as far as others do not, and its rows. How many pages there are depends on what was before.
func (p *program) cost() int {
	if p.image.budget.early && !p.rejected {
		return p.reach
	}
	return p.reach + max(p.spent, p.before)
}

// stop has a list take nothing any more.
func (p *program) stop() {
	p.before, p.stopped = p.spent, true
	p.image.arena.unread = p.image.fresh[p]
	p.clear()
	p.image.arena.unread = false
}

// size is how many prefixes a net has.
func (n *nets) size(a atom) int {
	if set := n.net[a].Set; set != 0 {
		return len(n.members[set])
	}
	return 1
}

// estimate refuses lists that would take too much by the addresses alone that they name, before
// anything is built.
func (m *Image) estimate() {
	if m.budget.isSet() && len(m.fresh)+len(m.nets.pending) > 0 {
		m.budget.begin(m)
		m.budget.swept, m.budget.early = true, true
		m.refuse()
		m.budget.early = false
	}
}

// refuse closes what is refused, and returns whether anything is that was not.
func (m *Image) refuse() (any bool) {
	if m.budget.isSet() && !m.budget.begun && len(m.rejected) > 0 {
		m.budget.begin(m)
	}
	if !m.budget.begun {
		return false
	}
	m.budget.sweep(m, 1)
	m.budget.settle(m)
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		e := m.ends[id]
		for d, p := range e.programs {
			if p == nil || e.rejected[d] != nil || !m.budget.refuses(m.budget.owners[e.Owner], p) {
				continue
			}
			e.rejected[d] = m.holdRejected(p)
			e.programs[d] = m.hold(Closed, Direction(d))
			m.letGoOf(p)
			any = true
			e.share = m.budget.share
			m.dirty[id] = true
			m.altered = m.altered || e.known
		}
	}
	return any
}

// holdRejected returns what is kept of a list that is refused, for one more endpoint.
func (m *Image) holdRejected(p *program) *program {
	key := programKey{p.list.Digest(), p.side}
	g := m.rejected[key]
	if g == nil {
		g = &program{image: m, list: p.list, side: p.side, rejected: true}
		m.rejected[key] = g
	}
	g.before = max(g.before, p.cost())
	g.users++
	return g
}

// letGoOfRejected takes it back from an endpoint; nil is none.
func (m *Image) letGoOfRejected(g *program) {
	if g == nil {
		return
	}
	if g.users--; g.users == 0 {
		delete(m.rejected, programKey{g.list.Digest(), g.side})
	}
}

// wanted returns the list of a direction as the budget counts it: also one that is refused.
func (e *endpoint) wanted(d int) *program {
	if e.rejected[d] != nil {
		return e.rejected[d]
	}
	return e.programs[d]
}

// refusedList is a direction of an endpoint that is closed.
type refusedList struct {
	id  uint32
	dir Direction
}

// refusedBefore returns what is refused of owners of which something became different.
func (m *Image) refusedBefore() (out []refusedList) {
	if len(m.rejected) == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		e := m.ends[id]
		for d, g := range e.rejected {
			if g != nil && (m.all || m.again[e.Owner]) {
				out = append(out, refusedList{id, Direction(d)})
			}
		}
	}
	return out
}

// retry wants lists again that were refused.
func (m *Image) retry(lists []refusedList) {
	for _, x := range lists {
		e := m.ends[x.id]
		m.letGoOf(e.programs[x.dir])
		m.letGoOfRejected(e.rejected[x.dir])
		e.programs[x.dir], e.rejected[x.dir] = m.hold(e.List(x.dir), x.dir), nil
		m.dirty[x.id] = true
		m.altered = m.altered || e.known
	}
}

// fitting returns those of the lists that may not be too much: of what is refused it is known how
// large it is at least.
func (m *Image) fitting(lists []refusedList) []refusedList {
	return slices.DeleteFunc(lists, func(x refusedList) bool {
		e := m.ends[x.id]
		return m.budget.refuses(m.budget.owners[e.Owner], e.rejected[x.dir])
	})
}

// Reconsider has the next plan look at everything that was refused.
func (m *Image) Reconsider() { m.all = true }

// Refused returns what is refused, by endpoint.
func (m *Image) Refused() (out []Refusal) {
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		e := m.ends[id]
		for d, g := range e.rejected {
			if g != nil {
				out = append(out, Refusal{id, Direction(d), e.Owner, e.share})
			}
		}
	}
	return out
}
