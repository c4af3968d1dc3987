package membership

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Selector returns the active selector of a peer. If it is not active yet, Selector activates it:
// it finds its groups and their addresses, and new groups find it from then on. The work for that,
// the number of groups examined and of addresses found, is subtracted from left. If none is left,
// Selector returns nil. Users register with Retain. It must only be called while the cluster does
// not change.
func (x *Sets) Selector(p Peer, left *int) *Selector {
	if s, ok := x.selectors[p.key]; ok {
		return s
	}
	if *left <= 0 {
		return nil
	}
	*left -= selectorWork
	defer func(before int) { *left -= x.work - before }(x.work)
	s := &Selector{Peer: p, users: map[api.PolicyID]int{}}
	x.selectors[p.key] = s
	x.scopes.add(s)
	s.moved = true // numbers found here are not reported
	switch {
	case p.key.presence:
		s.sets = []*Set{{sel: s, Refused: true}}
	case !s.PerPort():
		s.sets = []*Set{x.makeSet(s, 0)}
	}
	if p.key.scope.nodes {
		counted := newCountedSet()
		s.sets[0].nodes = &counted
		x.countNodes(s.sets[0], +1)
		return s
	}
	for id, g := range x.state.MatchGroups(s.counted(&x.work)) {
		for _, set := range x.setsFor(s, g) {
			if set.groups == 0 && !set.Refused {
				set.members = x.journal.newMembers()
			}
			x.links.enter(set, id)
			x.work += set.collect(x.addresses(id))
		}
	}
	for _, set := range s.sets {
		if !p.key.presence { // has nothing to publish
			set.fresh = true
			x.journal.touch(set)
		}
	}
	s.moved = false
	return s
}

// selectorWork is about the work of activating a selector without members.
const selectorWork = 64

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
		x.idle[last], x.idle = nil, x.idle[:last]
		if len(s.users) == 0 && x.selectors[s.key] == s {
			x.deactivate(s)
		}
	}
	return len(x.idle)+len(x.journal.touched) > 0
}

// deactivate removes a selector without users; its sets lose all members. An update must report the
// members as they were before, so the journal is settled before the links that settling needs are
// removed.
func (x *Sets) deactivate(s *Selector) {
	delete(x.selectors, s.key)
	x.scopes.remove(s)
	if s.key.scope.nodes {
		s.sets[0].dead = true
		x.countNodes(s.sets[0], -1)
		s.sets = nil
		return
	}
	s.moved = true // no user needs its numbers
	for _, set := range s.sets {
		x.journal.settle(set)
		if !s.key.presence {
			set.members = x.journal.newMembers()
		}
	}
	for id := range x.state.MatchGroups(s.counted(&x.work)) {
		for _, set := range s.sets {
			if x.links.exit(set, id) {
				x.work += set.collect(x.addresses(id))
			}
		}
	}
	for _, set := range s.sets {
		if !s.key.presence {
			set.dead = true
			x.journal.touch(set)
		}
	}
	s.sets = nil
}

// SettleNumbers drops the numbers that no group uses any more. It calls changed for the users of
// every selector whose numbers changed.
func (x *Sets) SettleNumbers(changed func(user api.PolicyID)) {
	for _, s := range x.moved {
		s.moved = false
		s.sets = slices.DeleteFunc(s.sets, func(set *Set) bool {
			if set.groups > 0 {
				return false
			}
			set.dead = true
			x.journal.touch(set)
			return true
		})
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
		if set.dead {
			delete(x.byID, set.ID)
			u.Dead = x.selectors[set.sel.key] != set.sel // else policies name a number that no pod has
		}
		updates = append(updates, u)
	}
	clear(x.journal.touched)
	x.journal.touched = x.journal.touched[:0]
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
