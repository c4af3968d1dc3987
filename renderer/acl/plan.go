package acl

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// plan is what a commit does: ACLs are created for what is live and has none, then it changes some
// ACLs, switches interfaces, and changes the rest.
type plan struct {
	live  map[*slot]bool      // what is held afterwards
	early []change            // in place, before interfaces are switched
	turns []*mirror.Interface // that are switched, in this order
	late  []change            // in place, after interfaces have left
	slow  []change            // when it is the turn of their slots, by slot
}

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

func (p place) index() uint32 { return p.slot.indexes[p.n] }

func (p place) want() entries.Piece { return p.slot.want[p.n] }

// differs reports whether an ACL that there is does not hold what it must.
func (p place) differs(m *mirror.Mirror) bool {
	return m.ACLs[p.index()].Piece.Digest != p.want().Digest
}

// places returns the ACLs of a slot.
func (s *slot) places() []place {
	out := make([]place, len(s.indexes))
	for n := range out {
		out[n] = place{s, n}
	}
	return out
}

// changes returns the messages that bring ACLs that interfaces have one after the other, in this
// order, from what they hold to what they must hold, in place. ok is false when an ACL would have
// to hold too much for a moment.
func changesOf(m *mirror.Mirror, sequence []place) (out []change, ok bool) {
	if !slices.ContainsFunc(sequence, func(p place) bool { return p.differs(m) }) {
		return nil, true
	}
	held, want := make([]entries.Piece, len(sequence)), make([]entries.Piece, len(sequence))
	for n, p := range sequence {
		held[n], want[n] = m.ACLs[p.index()].Piece, p.want()
	}
	steps, ok := layout.Changes(held, want)
	for _, s := range steps {
		out = append(out, change{place: sequence[s.At], piece: s.Piece})
	}
	return out, ok
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

// inputsOf returns which ACLs of inputs change in place.
func inputsOf(m *mirror.Mirror, p *plan) (out []change) {
	for _, s := range p.sorted() {
		if !s.isInput() || len(s.indexes) == 0 {
			continue
		}
		if h := m.ACLs[s.indexes[0]]; h != nil && h.Piece.Digest != s.want[0].Digest {
			out = append(out, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
	return out
}

// isInput reports whether the ACLs of the slot are in input lists that hold the guards.
func (s *slot) isInput() bool { return s.name == infraSlot || s.name == reflectSlot || s.isGuard() }

// sorted returns the slots that are held afterwards in the order of their names.
func (p *plan) sorted() []*slot {
	return slices.SortedFunc(maps.Keys(p.live), func(a, b *slot) int { return strings.Compare(a.name, b.name) })
}

// inTurn divides the changes of a slot: what it returns is done at once, the rest when it is the
// turn of the slot.
func (p *plan) inTurn(changes []change) (now []change) {
	i := slices.IndexFunc(changes, func(c change) bool { return c.paced })
	if i < 0 {
		return changes
	}
	p.slow = append(p.slow, changes[i:]...)
	return changes[:i]
}

// lineUp has the slots change first that have waited for the longest.
func (p *plan) lineUp() {
	slices.SortStableFunc(p.slow, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.slot.turn.last, b.slot.turn.last), cmp.Compare(a.slot.name, b.slot.name))
	})
}
