package acl

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
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

// changes returns the messages that bring ACLs that interfaces have one after the other, in this
// order, from what they hold to what they must hold, in place. ok is false when an ACL would have to
// hold too much for a moment.
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

func (p place) index() uint32 { return p.slot.indexes[p.n] }

func (p place) want() entries.Piece { return p.slot.want[p.n] }

// differs says whether an ACL that there is does not hold what it must.
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
