package acl

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// place is the n-th ACL of a slot.
type place struct {
	slot *slot
	n    int
}

// change is one message that replaces the content of an ACL.
type change struct {
	place
	piece entries.Piece
	paced bool // interfaces are switched to a new ACL one by one; in place otherwise
}

// changes returns the messages that bring ACLs that interfaces have one after the
// other, in this order, from what they hold to what they must hold. They are in
// place: no interface is touched. ok is false when an ACL would have to hold too
// much for a moment.
//
// Between any two messages every packet meets its old or its new verdict. To see
// why, write the ACLs as one sequence of positions, each with a verdict that does
// not change, where a position holds an entry before (O), afterwards (N) or both. Any
// two contents can be written so; new ones in front of the old ones, if nothing
// else. First every ACL gets what is new, from the first to the last (O becomes
// O or N), then every ACL loses what is old, from the last to the first. Let o be
// the first position in O that matches a packet, and w the first in N. As long as
// additions have reached position k, the first match is o, or w if w <= k, whichever
// comes first. When removals have come down to k, it is w, or o if o < k, whichever
// comes first. So it is o or w at all times, and the verdict there is the old or
// the new one. Steps can be taken together, because what is left out are states
// that nobody needs to see: the last ACL that differs is written once.
func (m *mirror) changes(sequence []place) (out []change, ok bool) {
	var differ []place
	for _, p := range sequence {
		if m.differs(p) {
			differ = append(differ, p)
		}
	}
	if len(differ) == 0 {
		return nil, true
	}
	last := len(differ) - 1
	var removals []change
	for _, p := range differ[:last] {
		old, want := m.acls[p.index()].piece, p.want()
		both, isOld, isNew := union(old.Entries, want.Entries)
		if len(both) > entries.MaxEntries {
			return nil, false
		}
		switch {
		case isNew:
			out = append(out, change{place: p, piece: want})
			continue
		case !isOld:
			out = append(out, change{place: p, piece: entries.NewPiece(both, nil)})
		}
		removals = append(removals, change{place: p, piece: want})
	}
	out = append(out, change{place: differ[last], piece: differ[last].want()})
	slices.Reverse(removals)
	return append(out, removals...), true
}

// isTwofold reports whether an ACL holds old and new entries for a moment.
func isTwofold(changes []change) bool {
	seen := make(map[uint32]bool)
	for _, c := range changes {
		if seen[c.index()] {
			return true
		}
		seen[c.index()] = true
	}
	return false
}

func (p place) index() uint32 { return p.slot.indexes[p.n] }

func (p place) want() entries.Piece { return p.slot.want[p.n] }

// differs says whether an ACL that there is does not hold what it must.
func (m *mirror) differs(p place) bool { return m.acls[p.index()].piece.Digest != p.want().Digest }

// places returns the ACLs of a slot.
func (s *slot) places() []place {
	out := make([]place, len(s.indexes))
	for n := range out {
		out[n] = place{s, n}
	}
	return out
}

// union returns entries of one ACL that lead from its old to its new ones. isOld
// says that they are the old ones, isNew that they are the new ones.
func union(old, want []entries.Entry) (both []entries.Entry, isOld, isNew bool) {
	if includes(old, want) {
		return old, true, false
	}
	if len(old) == 0 {
		return want, false, true
	}
	// The new ones in front. What is in front never matches a second time.
	has := make(map[entries.Entry]bool, len(want))
	for _, e := range want {
		has[e] = true
	}
	both = slices.Clip(want)
	for _, e := range old {
		if !has[e] {
			both = append(both, e)
		}
	}
	return both, false, len(both) == len(want)
}

// includes says whether all has every entry of some, and in the same order unless
// order means nothing there.
func includes(all, some []entries.Entry) bool {
	if len(some) > len(all) {
		return false
	}
	i := 0
	for _, e := range all {
		if i < len(some) && some[i] == e {
			i++
		}
	}
	if i == len(some) {
		return true
	}
	if !uniform(all) {
		return false
	}
	has := make(map[entries.Entry]bool, len(all))
	for _, e := range all {
		has[e] = true
	}
	return !slices.ContainsFunc(some, func(e entries.Entry) bool { return !has[e] })
}

// uniform says whether the order of entries means nothing, because they all have
// one verdict.
func uniform(all []entries.Entry) bool {
	return !slices.ContainsFunc(all, func(e entries.Entry) bool { return e.Verdict != all[0].Verdict })
}
