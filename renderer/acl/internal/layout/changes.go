package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Step replaces the content of one ACL of several.
type Step struct {
	At    int // index of the ACL
	Piece entries.Piece
}

// Changes returns the steps that change several ACLs in place from their held to their wanted
// content. Interfaces have the ACLs in the given order, and are not touched. ok is false when an
// ACL would have to hold too many entries for a moment.
//
// Between any two messages every packet meets its old or its new verdict. Proof: write the ACLs as
// one sequence of positions, each with a constant verdict, where a position holds an entry before
// (O), afterwards (N) or both. Any two contents can be written in this way, at worst with the new
// entries in front of the old ones. First every ACL gets its new entries, from the first to the
// last (O becomes O or N). Then every ACL loses its old entries, from the last to the first. Let o
// be the first position in O that matches a packet, and w the first in N. While additions have
// reached position k, the first match is o, or w if w <= k, whichever comes first. When removals
// have come down to k, it is w, or o if o < k, whichever comes first. So the first match is always
// o or w, and its verdict is the old or the new one. Steps may be combined, which only skips
// intermediate states: the last ACL that differs is written once.
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

// union returns the entries of one ACL between its old and its new content. isOld and isNew report
// whether it matches the same packets as one of these.
func union(old, want []entries.Entry) (both []entries.Entry, isOld, isNew bool) {
	switch {
	case len(old) == 0:
		return want, false, true
	case includes(old, want):
		return old, true, false
	}
	// The new entries come first. A later duplicate of an entry never matches.
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

// includes reports whether all contains every entry of some, in the same order unless the order
// does not matter.
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

// uniform reports whether all entries have the same verdict, so that their order does not matter.
func uniform(all []entries.Entry) bool {
	return !slices.ContainsFunc(all, func(e entries.Entry) bool { return e.Verdict != all[0].Verdict })
}
