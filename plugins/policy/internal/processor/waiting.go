package processor

import (
	"cmp"
	"slices"
)

// DefaultTurn is how much work one Flush does on selectors that are new or not used any more: so
// many groups that are examined and addresses that are found, about a millisecond. Dataplanes
// take two or three times as long for the members.
const DefaultTurn = 1 << 14

// refresh determines the lists of the marked groups and of those that wait, and marks the pods of
// groups whose list changed, or that begin or cease to wait. It returns the groups that may have
// other lists, and how much work is left: when it has done about so much on new selectors, groups
// wait for the next turn.
func (r *resolver) refresh(work int) (_ []*localGroup, left int) {
	r.turn++
	for _, g := range r.waiting {
		g.relisted = false
	}
	refreshed := slices.Concat(r.local.takeGroups(), r.waiting)
	for _, g := range refreshed[:len(refreshed)-len(r.waiting)] {
		switch {
		case len(g.pods) == 0:
			g.waits = nil
			r.list(g, nil)
		case g.waits == nil:
			g.waits = r.begin(g)
			r.waiting = append(r.waiting, g)
		default:
			g.waits.marked, g.waits.outdated = r.turn, true
		}
	}
	left = r.schedule(work)
	r.settleWaiting()
	for _, g := range refreshed {
		if waits := g.waits != nil; waits != g.waited {
			g.waited = waits
			r.local.markPods(g)
		}
	}
	return refreshed, left
}

// begin returns what a group must wait for to have the list of its current policies.
func (r *resolver) begin(g *localGroup) *wait {
	specs := r.state.Policies(g.id)
	w := &wait{parts: make([]part, len(specs)), since: r.turn}
	for i, spec := range specs {
		w.parts[i].spec = spec
		w.parts[i].ingress, w.parts[i].key = resolveIngress(spec, g.def)
	}
	return w
}

// same reports whether two waits are for the same policies.
func (w *wait) same(o *wait) bool {
	return slices.EqualFunc(w.parts, o.parts, func(a, b part) bool { return a.spec == b.spec })
}

// evaluate evaluates selectors of the policies of a wait. It returns false if some are left when
// the work of this turn is done.
func (r *resolver) evaluate(w *wait) bool {
	for i := range w.parts {
		p := &w.parts[i]
		if p.draft == nil {
			if r.current(p) != nil {
				continue
			}
			p.draft = r.draftOf(p)
		}
		if !r.work(p) {
			return false
		}
	}
	return true
}

func (r *resolver) draftOf(p *part) *draft {
	key := draftKey{p.spec, p.key}
	d := r.drafts[key]
	if d == nil {
		d = &draft{}
		r.drafts[key] = d
	}
	return d
}

// work evaluates selectors of a policy, and returns whether all are evaluated.
func (r *resolver) work(p *part) bool {
	d := p.draft
	if d.done || r.left <= 0 {
		return d.done
	}
	b := &builder{sets: r.sets, spec: p.spec, pass: d.passed, left: r.left}
	policy := b.policy(p.ingress)
	r.left = b.left
	uses := b.uses
	if n := len(d.uses); n > 0 && len(uses) > 0 && uses[0] == d.uses[n-1] {
		uses = uses[1:] // it was not complete
	}
	d.uses = append(d.uses, uses...)
	if b.over {
		d.passed = b.pass
		return false
	}
	if d.done = true; d.passed == 0 {
		d.built, d.policy, d.builtIn = b, policy, r.turn
	}
	return true
}

// schedule works on the groups that wait until the work of the turn is done, and returns how much
// is left. Half of it belongs to the group that has waited longest. The rest goes first to those
// for which least has been done, so that what is small never waits for what is large. The first one
// gets what others leave.
func (r *resolver) schedule(turn int) (left int) {
	r.waiting = slices.DeleteFunc(r.waiting, func(g *localGroup) bool { return g.waits == nil }) // without pods
	if len(r.waiting) == 0 {
		return turn
	}
	half := (turn + 1) / 2
	left = max(1, turn-min(r.step(r.waiting[0], half), half))
	rest := slices.Clone(r.waiting[1:])
	slices.SortStableFunc(rest, func(a, b *localGroup) int { return cmp.Compare(a.waits.spent, b.waits.spent) })
	for share := max(1, half/shares); len(rest) > 0; {
		groups, before := len(rest), left
		for _, g := range rest {
			left -= r.step(g, min(share, left))
		}
		rest = slices.DeleteFunc(rest, func(g *localGroup) bool { return g.waits == nil })
		if left <= 0 || left == before && len(rest) == groups {
			break
		}
	}
	if oldest := r.waiting[0]; oldest.waits != nil && left > 1 {
		left = max(1, left-r.step(oldest, left))
	}
	return left
}

// shares is into how many parts a half of a turn is divided: each group gets one after the other.
const shares = 32

// step works on a group, and returns how much work that was.
func (r *resolver) step(g *localGroup, work int) (spent int) {
	w := g.waits
	if w.marked == r.turn && w.outdated { // perhaps the newest policies take little work
		now := r.begin(g)
		w.outdated = !now.same(w)
		r.left = work / 4
		if w.outdated && r.evaluate(now) {
			r.list(g, r.listOf(now, false))
			g.waits = nil
			return work/4 - r.left
		}
		if w.outdated {
			spent = work/4 - r.left
			work -= work / 4
		}
	}
	r.left = work
	if r.evaluate(w) {
		r.list(g, r.listOf(w, w.outdated))
		g.waits, g.relisted = nil, w.outdated
		if w.outdated {
			g.waits = r.begin(g)
		}
	}
	spent += work - r.left
	w.spent += spent
	return spent
}

// settleWaiting keeps what groups still wait for, and releases the rest.
func (r *resolver) settleWaiting() {
	r.waiting = slices.DeleteFunc(r.waiting, func(g *localGroup) bool { return g.waits == nil })
	slices.SortStableFunc(r.waiting, func(a, b *localGroup) int { return cmp.Compare(a.waits.since, b.waits.since) })
	for _, g := range r.waiting {
		for _, p := range g.waits.parts {
			if p.draft != nil {
				p.draft.needed = r.turn
			}
		}
	}
	for key, d := range r.drafts {
		id := key.spec.ID
		for ; d.held < len(d.uses); d.held++ {
			d.uses[d.held].Retain(id)
		}
		if d.built = nil; d.needed == r.turn {
			continue
		}
		for _, s := range d.uses {
			r.sets.Release(s, id)
		}
		if d.old != nil && d.old.lists == 0 {
			r.dropResolution(d.old)
		}
		delete(r.drafts, key)
	}
}
