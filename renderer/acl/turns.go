package acl

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/acl/internal/pauses"
)

// A change of a large table that switches interfaces one by one takes seconds when there are many.
// Therefore a Commit stops between two slots after some time. The next Commit, which knows newer
// input, continues with the slots that have the oldest content. Changes that only add to segments
// of recent entries are not affected: every Commit makes them for all slots.

// turns is the progress of slots that change one after the other.
type turns struct {
	began time.Time // start of the running or last Commit
	count int       // slots that have had their turn
	since time.Time // start of the oldest Commit that is not in force on all interfaces; zero when all are
}

// pace controls when a Commit makes changes that may wait: joining set members, slots with long
// changes, and compaction.
type pace struct {
	deferral   pauses.Deferral
	deferring  pauses.Timer // fires when postponed changes are due
	turns      turns        // of slots with long changes
	idle       pauses.Timer // fires when compaction is due
	compacting bool         // compaction is due, unless there is other work
}

func (p *pace) stop() {
	p.idle.Stop()
	p.deferring.Stop()
}

// pauses returns the Pauses that readers see.
func (p *pace) pauses() renderer.Pauses {
	out := p.deferral.Pauses()
	out.Behind = p.turns.since
	return out
}

// unfinished returns when the oldest Commit began that is not completely in force, or zero when all
// are.
func (p *pace) unfinished() time.Time {
	since := p.turns.since
	if oldest := p.deferral.Oldest(); !oldest.IsZero() && (since.IsZero() || oldest.Before(since)) {
		since = oldest
	}
	return since
}

// awaitUnfinished arranges for prompt to be called when postponed changes are due, and returns the
// result of unfinished.
func (p *pace) awaitUnfinished(now time.Time, prompt func()) (since time.Time) {
	since = p.unfinished()
	switch {
	case since.IsZero():
		p.deferring.Cancel()
	case !p.turns.since.IsZero():
		p.deferring.Wait(0, prompt)
	default:
		p.deferring.Wait(p.deferral.Due(now).Sub(now), prompt)
	}
	return since
}

// keep makes a slot keep its content until it is laid out again.
func (s *slot) keep(m *mirror.Mirror) {
	s.want = slices.Clone(s.want)
	for n, index := range s.indexes {
		held := m.ACLs[index].Piece
		if held.Digest == s.want[n].Digest {
			continue
		}
		if s.table != s.turn.table {
			held.Rules = nil
		}
		s.want[n] = held
	}
	s.table = renderer.Digest{}
}
