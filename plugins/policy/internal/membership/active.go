package membership

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Selector returns the active selector of a peer. If it is not active yet, Selector activates it:
// it finds its groups and their addresses, and new groups find it from then on. Users register with
// Retain; a selector without users stays active until DropIdle. Selector must only be called while
// the cluster does not change.
func (x *Sets) Selector(p Peer) *Selector {
	if s := x.selectors[p.key]; s != nil {
		return s
	}
	s := &Selector{Peer: p, users: map[api.PolicyID]int{}}
	switch {
	case p.key.presence:
		s.sets = []*Set{{sel: s, Refused: true}}
	case !s.PerPort():
		s.sets = []*Set{x.makeSet(s, 0)}
	}
	x.selectors[p.key] = s
	added := x.scopes.add(s)
	s.moved = true // numbers found now are not reported
	if p.key.scope.nodes {
		x.countNodes(s.sets[0], +1)
		return s
	}
	if added {
		for range x.state.MatchGroups(s.all()) {
			s.scope.groups++
		}
	}
	for id := range x.state.MatchGroups(s.Query()) {
		x.link(s, id)
	}
	s.moved = false
	return s
}

// Active returns the active selector of a peer, or nil.
func (x *Sets) Active(p Peer) *Selector { return x.selectors[p.key] }

// Retain adds a use of a selector to a policy and to a tally.
func (x *Sets) Retain(s *Selector, user api.PolicyID, t *Tally) {
	s.users[user]++
	i := slices.IndexFunc(s.claims, func(c claim) bool { return c.tally == t })
	if i >= 0 {
		s.claims[i].uses++
		return
	}
	s.claims = append(s.claims, claim{t, 1})
	t.count(s, +1)
	x.touchAll(s)
}

// Release drops a use that Retain added.
func (x *Sets) Release(s *Selector, user api.PolicyID, t *Tally) {
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
	i := slices.IndexFunc(s.claims, func(c claim) bool { return c.tally == t })
	if s.claims[i].uses--; s.claims[i].uses > 0 {
		return
	}
	s.claims = slices.Delete(s.claims, i, i+1)
	t.count(s, -1)
	x.touchAll(s)
	if len(s.claims) == 0 {
		x.idle = append(x.idle, s)
	}
}

// touchAll touches the sets of a selector: it may begin or cease to be published.
func (x *Sets) touchAll(s *Selector) {
	for _, set := range s.sets {
		if !set.Refused && set.published != s.isNamed() {
			x.journal.touch(set)
		}
	}
}

// DropIdle deactivates the selectors without users: their sets lose all members.
func (x *Sets) DropIdle() {
	// The last one is the first to go: links of groups to the newest sets are found fastest.
	for _, s := range slices.Backward(x.idle) {
		if len(s.claims) == 0 && x.selectors[s.key] == s {
			x.deactivate(s)
		}
	}
	clear(x.idle)
	x.idle = x.idle[:0]
}

func (x *Sets) deactivate(s *Selector) {
	delete(x.selectors, s.key)
	x.scopes.remove(s)
	s.moved = true // no user needs its numbers
	if s.key.scope.nodes {
		x.countNodes(s.sets[0], -1)
	} else {
		for id := range x.state.MatchGroups(s.Query()) {
			x.unlink(s, id)
		}
	}
	for _, set := range s.sets {
		x.drop(set)
	}
}

// drop makes a set unknown that has no groups any more. What it loses is in the next updates.
func (x *Sets) drop(set *Set) {
	if x.byID[set.ID] == set {
		delete(x.byID, set.ID)
	}
	x.journal.touch(set)
}

// SettleNumbers drops the numbers that no group uses any more. It calls changed for the users of
// every selector whose numbers changed.
func (x *Sets) SettleNumbers(changed func(user api.PolicyID)) {
	for _, s := range x.moved {
		if s.moved = false; x.selectors[s.key] != s {
			continue
		}
		s.sets = slices.DeleteFunc(s.sets, func(set *Set) bool {
			if set.groups == 0 {
				x.drop(set)
			}
			return set.groups == 0
		})
		for id := range s.users {
			changed(id)
		}
	}
	clear(x.moved)
	x.moved = x.moved[:0]
}

// TakeUpdates returns the changes of published sets since the last call, in no particular order. A
// set is published while a policy names it; one that only a silent tally counts is not.
func (x *Sets) TakeUpdates() []Update {
	updates := make([]Update, 0, len(x.journal.touched)+1) // one more for the set of the own node
	for _, set := range x.journal.touched {
		u := x.update(set)
		if set.resize(len(u.Added) - len(u.Removed)) {
			x.flipped = append(x.flipped, set.sel)
		}
		if !set.Refused {
			updates = append(updates, u)
		}
	}
	clear(x.journal.touched)
	x.journal.touched = x.journal.touched[:0]
	x.journal.forgetUnshared()
	return updates
}

// update returns the change of a set. The journal of a set that is not published is thrown away, so
// one that begins or ceases to be published then gains or loses what it really has.
func (x *Sets) update(set *Set) Update {
	was, is, missed := set.published, set.sel.isNamed(), set.missed
	set.published, set.missed = is, !is
	if is && !missed || was && set.groups == 0 {
		return x.journal.takeUpdate(set)
	}
	u := Update{ID: set.ID}
	switch {
	case is:
		u.Added = prefixes(x.membersOf(set, deltas{}))
	case was:
		u.Removed = prefixes(x.membersOf(set, set.journal.negated()))
	}
	set.touched, set.journal = false, deltas{}
	return u
}

// TakeFlipped returns the selectors whose pods or numbers appeared or disappeared: presence
// selectors, and those of named ports within blocks. The result is valid until the cluster changes.
func (x *Sets) TakeFlipped() []*Selector {
	flipped := x.flipped
	x.flipped = x.flipped[:0]
	return flipped
}
