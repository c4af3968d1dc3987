package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Step replaces the content of one ACL of several.
type Step struct {
	At    int // which of them
	Piece entries.Piece
}

// Changes returns the steps that bring ACLs that interfaces have one after the
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
func Changes(held, want []entries.Piece) (out []Step, ok bool) {
	last := len(held) - 1
	for last >= 0 && held[last].Digest == want[last].Digest {
		last--
	}
	if last < 0 {
		return nil, true
	}
	var removals []Step
	for n, old := range held[:last] {
		if old.Digest == want[n].Digest {
			continue
		}
		both, isOld, isNew := union(old.Entries, want[n].Entries)
		if len(both) > entries.MaxEntries {
			return nil, false
		}
		switch {
		case isNew:
			out = append(out, Step{n, want[n]})
			continue
		case !isOld:
			out = append(out, Step{n, entries.NewPiece(both, nil)})
		}
		removals = append(removals, Step{n, want[n]})
	}
	out = append(out, Step{last, want[last]})
	slices.Reverse(removals)
	return append(out, removals...), true
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

// includes reports whether all has every entry of some, and in the same order unless
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

// uniform reports whether the order of entries means nothing, because they all have
// one verdict.
func uniform(all []entries.Entry) bool {
	return !slices.ContainsFunc(all, func(e entries.Entry) bool { return e.Verdict != all[0].Verdict })
}
