package session

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// step is one change of a section.
type step struct {
	add    bool
	place  place
	action api.Action
}

// String is for people.
func (s step) String() string {
	verb := "-"
	if s.add {
		verb = "+"
	}
	return fmt.Sprintf("%s%s:%d %s", verb, s.place.peer, s.place.port, s.action)
}

// tightens reports whether something may be denied afterwards that is not before.
func (s step) tightens() bool { return s.add == (s.action == api.Deny) }

// plan returns the steps that lead from the rules that a section has to such that decide as
// those wanted do, and what it then has. Between any two steps every connection attempt is
// decided as before or as wanted. Steps that need not be are not made: what decides alike,
// stays, also where it could be written shorter.
func plan(have, want rules, family int) (steps []step, result rules) {
	p := &planner{family: family, have: maps.Clone(have), want: maps.Clone(want)}
	p.from, p.to = have.otherwise(family), want.otherwise(family)
	p.align()
	p.refine()
	if p.from == p.to {
		p.change()
	} else {
		p.flip()
	}
	return p.steps, p.have
}

type planner struct {
	family     int
	from, to   api.Action // what is decided by no rule, before and afterwards
	have, want rules
	byAddr     map[netip.Addr][]place // of both, that have an address in common
	steps      []step
}

// align divides wanted rules until none of them would be hidden: by what is there when it is
// added, or by another wanted one.
func (p *planner) align() {
	p.index()
	for _, at := range p.want.sorted() {
		p.divide(p.want, at, p.isHidden)
	}
}

// index collects places by their first address, where several have it.
func (p *planner) index() {
	p.byAddr = make(map[netip.Addr][]place)
	for at := range p.have {
		p.byAddr[at.peer.Addr()] = append(p.byAddr[at.peer.Addr()], at)
	}
	for at := range p.want {
		if _, both := p.have[at]; !both {
			p.byAddr[at.peer.Addr()] = append(p.byAddr[at.peer.Addr()], at)
		}
	}
}

// isHidden reports whether a wanted rule would be hidden.
func (p *planner) isHidden(at place) bool {
	_, present := p.have[at]
	return slices.ContainsFunc(p.byAddr[at.peer.Addr()], func(o place) bool {
		if !o.hides(at) {
			return false
		}
		if _, wanted := p.want[o]; wanted && (o.port == 0 && at.port != 0 || !present) {
			return true
		}
		_, there := p.have[o]
		return there && !present
	})
}

// divide replaces a rule by its halves as long as it must be, and returns what it replaced and
// the pieces.
func (p *planner) divide(in rules, at place, must func(place) bool) (gone, pieces []place) {
	action, ok := in[at]
	if !ok || at.peer.IsSingleIP() || !must(at) {
		return nil, []place{at}
	}
	delete(in, at)
	gone = []place{at}
	low, high := at.halves()
	for _, half := range [2]place{low, high} {
		if _, ok := in[half]; !ok {
			in[half] = action
			p.byAddr[half.peer.Addr()] = append(p.byAddr[half.peer.Addr()], half)
		}
		g, ps := p.divide(in, half, must)
		gone, pieces = append(gone, g...), append(pieces, ps...)
	}
	return gone, pieces
}

// refine divides rules that are there where a rule for any port is to come that would take
// them for its own: that has their first address, and not all of theirs. It changes no
// verdict: the pieces come first.
func (p *planner) refine() {
	p.index()
	exceptions, was := p.exceptions(), maps.Clone(p.have)
	for _, at := range p.have.sorted() {
		if at.port == 0 {
			continue
		}
		action := p.have[at]
		gone, pieces := p.divide(p.have, at, func(at place) bool {
			_, holds := exceptions[at]
			_, there := was[at]
			return holds && action == p.to || p.isTaken(at, there)
		})
		if len(gone) == 0 {
			continue
		}
		for _, piece := range pieces {
			if _, there := was[piece]; !there {
				p.steps = append(p.steps, step{true, piece, p.have[piece]})
			}
		}
		for _, at := range gone {
			if a, there := was[at]; there {
				p.steps = append(p.steps, step{false, at, a})
			}
		}
	}
}

// isTaken reports whether a rule for any port would take a rule that is there for its own, or a
// rule that is there would hide a piece that is not.
func (p *planner) isTaken(at place, there bool) bool {
	return slices.ContainsFunc(p.byAddr[at.peer.Addr()], func(o place) bool {
		_, present := p.have[o]
		_, wanted := p.want[o]
		return o.hides(at) && (o.port == 0 && (wanted || present) || !there && present)
	})
}

// exceptions returns all places that hold a wanted exception and more. A rule that says the
// same there must be divided at it, so that the exception does not come to stand within that
// rule only.
func (p *planner) exceptions() map[place]struct{} {
	holding := map[place]struct{}{}
	for at, action := range p.want {
		if at.port == 0 || action != p.to {
			continue
		}
		for bits := at.peer.Bits() - 1; bits >= 0; bits-- {
			up := place{netip.PrefixFrom(at.peer.Addr(), bits).Masked(), at.port}
			if _, known := holding[up]; known {
				break
			}
			holding[up] = struct{}{}
		}
	}
	return holding
}

// change leads to the wanted rules while the rest stays what it is. First come exceptions
// whose attempts are decided so already; then rules that say the opposite of the rest; then
// those that said so go; then come the exceptions that were within one of these; at last
// exceptions go.
func (p *planner) change() {
	late := p.addExceptions()
	p.addAll(p.missing(opposite(p.to)))
	p.removeStale()
	p.addAll(late)
}

// flip leads to the wanted rules where the rest changes, too. What it will not decide as now is
// said first, then it changes, and then what it says goes.
func (p *planner) flip() {
	late := p.addExceptions()
	p.addAll(p.missing(opposite(p.to)))
	top := tops[p.family]
	if p.to == api.Deny {
		p.steps, p.have[top] = append(p.steps, step{true, top, api.Deny}), api.Deny
	} else {
		p.steps = append(p.steps, step{false, top, api.Deny})
		delete(p.have, top)
	}
	p.removeStale()
	p.addAll(late)
}

// addExceptions adds the wanted exceptions that are not within a rule for their port that says
// the opposite, and returns the others. There VPP would look for them, and not in the rule for
// any port that they are exceptions of.
func (p *planner) addExceptions() (late []place) {
	for _, at := range p.missing(p.to) {
		if p.isWithin(at) {
			late = append(late, at)
		} else {
			p.add(at)
		}
	}
	return late
}

// isWithin reports whether a rule for the port of a place that says the opposite of the rest
// holds the place.
func (p *planner) isWithin(at place) bool {
	for bits := at.peer.Bits(); bits >= 0; bits-- {
		up := place{netip.PrefixFrom(at.peer.Addr(), bits).Masked(), at.port}
		if a, ok := p.have[up]; ok && a != p.to {
			return true
		}
	}
	return false
}

// missing returns the wanted rules with an action that are not there, wide ones first.
func (p *planner) missing(action api.Action) (out []place) {
	for at, a := range p.want {
		if has, ok := p.have[at]; a == action && !at.isTop() && (!ok || has != a) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, place.compare)
	return out
}

func (p *planner) addAll(places []place) {
	for _, at := range places {
		p.add(at)
	}
}

// add adds a wanted rule. One that says the opposite goes before: all attempts that it decides
// are decided otherwise afterwards.
func (p *planner) add(at place) {
	if has, ok := p.have[at]; ok {
		p.steps = append(p.steps, step{false, at, has})
	}
	p.have[at] = p.want[at]
	p.steps = append(p.steps, step{true, at, p.want[at]})
}

// removeStale removes the rules that are not wanted, wide ones first: what such a rule decides
// is decided by wanted rules then, or by others that are not wanted and go after it.
func (p *planner) removeStale() {
	var places []place
	for at := range p.have {
		if _, ok := p.want[at]; !ok && !at.isTop() {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, place.compare)
	for _, at := range places {
		p.steps = append(p.steps, step{false, at, p.have[at]})
		delete(p.have, at)
	}
}
