package membership

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// Selector returns the active selector of a peer. If it is not active yet, Selector activates it:
// it finds its groups and their addresses, and new groups find it from then on. The work for that,
// the number of groups examined and of addresses found, is subtracted from left. If none is left
// before all groups are linked, the selector is not Complete, and the next call goes on. If none is
// left to begin with, Selector may return nil. Users register with Retain, also for a selector that
// is not complete. It must only be called while the cluster does not change.
func (x *Sets) Selector(p Peer, left *int) *Selector {
	s := x.selectors[p.key]
	if s != nil && s.Complete() || *left <= 0 {
		return s
	}
	begin, seen := x.work, true
	if s == nil {
		s, seen = x.activate(p)
	}
	for first := true; len(s.pending) > 0 && (first || x.work-begin < *left); first = false {
		if id := s.next(); seen {
			x.correct(s, id)
		} else {
			x.link(s, id)
		}
	}
	if s.Complete() {
		s.moved = false
		x.journal.dropNumbers(s)
	}
	*left -= x.work - begin
	return s
}

// selectorWork is about the work of activating a selector without members.
const selectorWork = 64

// activate makes a selector active, whose groups are then pending. One that is being dropped
// becomes active again; some of its groups are linked, not all of which match.
func (x *Sets) activate(p Peer) (s *Selector, again bool) {
	x.work += selectorWork
	s, again = x.dying[p.key]
	delete(x.dying, p.key)
	if !again {
		s = &Selector{Peer: p, users: map[api.PolicyID]int{}}
		switch {
		case p.key.presence:
			s.sets = []*Set{{sel: s, Refused: true}}
		case !s.PerPort():
			s.sets = []*Set{x.makeSet(s, 0)}
		}
	}
	x.selectors[p.key] = s
	x.scopes.add(s)
	s.moved = true // numbers found now are not reported
	for _, set := range s.sets {
		x.byID.register(set)
		set.dead = false
		x.journal.touch(set)
	}
	if p.key.scope.nodes {
		x.countNodes(s.sets[0], +1)
		return s, again
	}
	s.search(x.state, &x.work)
	return s, again
}

// correct links or unlinks a group that was found before. Its ID may be that of another group by
// now.
func (x *Sets) correct(s *Selector, id intent.GroupID) {
	x.work++
	g := x.links.groups[id].def
	matches := g != nil && s.matches(g, x.namespaces[g.Namespace])
	linked := slices.ContainsFunc(s.sets, func(set *Set) bool { return x.links.has(set, id) })
	switch {
	case matches && !linked:
		x.link(s, id)
	case linked && !matches:
		x.unlink(s, id)
	}
}

// Release drops one use of a selector. A selector without users stays active until DropIdle.
func (x *Sets) Release(s *Selector, user api.PolicyID) {
	if s.users[user]--; s.users[user] <= 0 {
		delete(s.users, user)
	}
	if len(s.users) == 0 {
		x.idle = append(x.idle, s)
	}
}

// DropIdle deactivates selectors without users until it has done so much work. The others stay
// active, and their sets are kept up to date. It returns whether anything is left to do: here, or
// for TakeUpdates.
func (x *Sets) DropIdle(work int) (more bool) {
	// The last one is the first to go: links of groups to the newest sets are found fastest.
	for begin := x.work; len(x.idle) > 0 && x.work-begin < work; {
		last := len(x.idle) - 1
		s := x.idle[last]
		if len(s.users) == 0 && x.selectors[s.key] == s {
			x.deactivate(s)
		}
		dying := x.dying[s.key] == s
		for dying && !s.Complete() && x.work-begin < work {
			x.work++
			x.unlink(s, s.next())
		}
		if dying && s.Complete() {
			x.journal.touchAll(s)
		}
		if !dying || s.Complete() {
			x.idle[last], x.idle = nil, x.idle[:last]
		}
	}
	return len(x.idle)+len(x.journal.touched) > 0
}

// deactivate begins to drop a selector without users; its sets lose all members. No further group
// is linked to it. Those that are linked are pending.
func (x *Sets) deactivate(s *Selector) {
	delete(x.selectors, s.key)
	x.dying[s.key] = s
	x.scopes.remove(s)
	s.moved = true // no user needs its numbers
	for _, set := range s.sets {
		set.dead = true
	}
	if s.key.scope.nodes {
		x.countNodes(s.sets[0], -1)
		return
	}
	s.search(x.state, &x.work)
}

// SettleNumbers drops the numbers that no group uses any more. It calls changed for the users of
// every selector whose numbers changed.
func (x *Sets) SettleNumbers(changed func(user api.PolicyID)) {
	for _, s := range x.moved {
		s.moved = false
		x.journal.dropNumbers(s)
		for id := range s.users {
			changed(id)
		}
	}
	x.moved = x.moved[:0]
}

// TakeUpdates returns the changes of sets since the last call, in no particular order.
func (x *Sets) TakeUpdates() []Update {
	updates := make([]Update, 0, len(x.journal.touched)+1) // one more for the set of the own node
	for _, set := range x.journal.touched {
		u := x.journal.take(set)
		if set.resize(len(u.Added) - len(u.Removed)) {
			x.flipped = append(x.flipped, set.sel)
		}
		if set.Refused {
			continue
		}
		if set.dead && set.groups == 0 && x.byID[set.ID] == set {
			delete(x.byID, set.ID)
		}
		u.Dead = set.dead && x.selectors[set.sel.key] != set.sel // else policies name a number that no pod has
		updates = append(updates, u)
	}
	clear(x.journal.touched)
	x.journal.touched = x.journal.touched[:0]
	maps.DeleteFunc(x.dying, func(_ key, s *Selector) bool { return s.Complete() })
	x.journal.forgetUnshared()
	return updates
}

// TakeFlipped returns the selectors whose pods or numbers appeared or disappeared: presence
// selectors, and those of named ports within blocks. The result is valid until the cluster changes.
func (x *Sets) TakeFlipped() []*Selector {
	flipped := x.flipped
	x.flipped = x.flipped[:0]
	return flipped
}
