package acl

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// plan is the work of a commit: create the ACLs of live slots that have none, change some ACLs in
// place, switch interfaces, then change the rest.
type plan struct {
	live  map[*slot]bool      // slots that are in use afterwards
	early []change            // in place, before interfaces are switched
	turns []*mirror.Interface // interfaces to switch, in this order
	late  []change            // in place, after interfaces have left
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
	paced bool // interfaces are switched to a new ACL one by one; otherwise the change is in place
}

func (p place) index() uint32 { return p.slot.indexes[p.n] }

func (p place) want() entries.Piece { return p.slot.want[p.n] }

// differs reports whether an existing ACL does not hold its desired content.
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

// isSettled reports whether the ACLs of a slot hold what they should.
func (s *slot) isSettled(m *mirror.Mirror) bool {
	for n, p := range s.places() {
		if h := m.ACLs[p.index()]; n >= len(s.want) || h == nil || p.differs(m) || len(h.Piece.Entries) != h.Piece.Count {
			return false
		}
	}
	return len(s.want) > 0 && s.table != renderer.Digest{}
}

// changesOf returns the messages that change ACLs in place to their desired content. sequence has
// the order of the ACLs in interface lists. ok is false when an ACL would have to hold too many
// entries for a moment.
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

// inputsOf returns the changes in place of input ACLs.
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

// isInput reports whether the slot's ACLs are in the input lists that contain guards.
func (s *slot) isInput() bool { return s.name == infraSlot || s.name == reflectSlot || s.isGuard() }

// sorted returns the live slots by name.
func (p *plan) sorted() []*slot {
	return slices.SortedFunc(maps.Keys(p.live), func(a, b *slot) int { return strings.Compare(a.name, b.name) })
}
