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
	taken  int // lines by lists since it was looked at
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
	b.share, b.taken, b.owners = b.Share, 0, map[string]*owner{}
	for _, p := range m.programs {
		p.owners, p.reach = p.owners[:0], 0
	}
	for _, e := range m.ends {
		o := b.owners[e.Owner]
		if o == nil {
			o = &owner{lists: map[*program]bool{}}
			b.owners[e.Owner] = o
		}
		for _, p := range e.programs {
			if p != nil && !o.lists[p] {
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

// took notes that lists took so many lines, and looks at the whole when that is some part of it.
func (b *budget) took(m *Image, lines int) {
	if b.taken += lines; b.taken > max(b.Lines, b.Share)/64 && b.isSet() {
		b.settle(m)
	}
}

func (b *budget) isSet() bool { return b.Budget != Budget{} }

// settle stops the lists that may not become as large as they are.
func (b *budget) settle(m *Image) {
	b.taken = 0
	for b.stop(m); b.Lines > 0 && m.wanted() > b.Lines && b.share != 1; b.stop(m) {
		if b.share == 0 || b.share > b.Lines {
			b.share = b.Lines
		}
		b.share = max(b.share/2, 1)
	}
}

// wanted is how many lines all lists take that are not stopped.
func (m *Image) wanted() (lines int) {
	for _, p := range m.programs {
		if !p.stopped {
			lines += p.cost()
		}
	}
	return lines
}

// stop stops the lists of owners that are over their share, where every owner of a list is.
func (b *budget) stop(m *Image) {
	for _, o := range b.owners {
		lines := 0
		for p := range o.lists {
			lines += p.cost() / len(p.owners)
		}
		o.most = max(o.most, lines)
		o.over = b.share > 0 && o.most > b.share
	}
	for _, p := range m.programs {
		if !p.stopped && len(p.owners) > 0 && !slices.ContainsFunc(p.owners, func(o *owner) bool { return !b.refuses(o, p) }) {
			p.stop()
		}
	}
}

func (b *budget) refuses(o *owner, p *program) bool {
	return o.over && p.list.Digest() != Closed.Digest() && p.cost() > o.quota(b.share)
}

// cost is how many lines a list takes, or took until it was stopped: one for each address that it
// names, as far as others do not, and those that say what it says about them.
func (p *program) cost() int { return p.reach + max(p.spent, p.before) }

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
		m.refuse()
	}
}

// refuse closes what is refused, and returns whether anything is that was not.
func (m *Image) refuse() (any bool) {
	if !m.budget.isSet() || m.budget.owners == nil {
		return false
	}
	m.budget.settle(m)
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		e := m.ends[id]
		for d, p := range e.programs {
			if p == nil || e.refused[d] || !m.budget.refuses(m.budget.owners[e.Owner], p) {
				continue
			}
			e.programs[d] = m.hold(Closed, Direction(d))
			m.letGoOf(p)
			e.refused[d], any = true, true
			e.share = m.budget.share
			m.dirty[id] = true
			m.altered = m.altered || e.known
		}
	}
	return any
}

// retry wants again what was refused of owners of which something became different.
func (m *Image) retry() {
	for id, e := range m.ends {
		if !m.again[e.Owner] && !m.all {
			continue
		}
		for d := range e.refused {
			if e.refused[d] {
				m.letGoOf(e.programs[d])
				e.programs[d], e.refused[d] = m.hold(e.List(Direction(d)), Direction(d)), false
				m.dirty[id] = true
				m.altered = m.altered || e.known
			}
		}
	}
	clear(m.again)
	m.all = false
}

// Reconsider has the next plan look at everything that was refused.
func (m *Image) Reconsider() { m.all = true }

// Refused returns what is refused, by endpoint.
func (m *Image) Refused() (out []Refusal) {
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		e := m.ends[id]
		for d, refused := range e.refused {
			if refused {
				out = append(out, Refusal{id, Direction(d), e.Owner, e.share})
			}
		}
	}
	return out
}
