package acl

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/acl/internal/pauses"
)

// A change of a large table that has interfaces switch one by one takes seconds on many of them. So
// a Commit stops between two slots after some time, and the next one, which knows what has come
// meanwhile, goes on with the slots whose content is the oldest. What only adds to the young
// segments does not take part: every Commit does it for all slots.

// maxTurns is for how long a Commit begins with further slots.
const maxTurns = 700 * time.Millisecond

// turns is how far the slots are that change one after the other.
type turns struct {
	began time.Time // the Commit that runs, or the last one
	count int       // slots that have had their turn
	since time.Time // the oldest Commit began that is not in force on all interfaces; zero when all are
}

// turn is how far one slot is.
type turn struct {
	last  int             // its number among those that had their turn
	since time.Time       // the oldest Commit began that is not in force; zero when all are
	table renderer.Digest // that it held, whose rules those of its entries are
}

// pace says when a Commit does what may wait: members that join sets, slots whose changes take
// long, and room for what joins.
type pace struct {
	deferral   pauses.Deferral
	deferring  pauses.Timer // until what waits is due
	turns      turns        // of slots whose changes take long
	idle       pauses.Timer // until it is the time to make room
	compacting bool         // it is the time to make room, unless there is something else to do
}

func (p *pace) stop() {
	p.idle.Stop()
	p.deferring.Stop()
}

// pauses returns what readers see.
func (p *pace) pauses() renderer.Pauses {
	out := p.deferral.Pauses()
	out.Behind = p.turns.since
	return out
}

// unfinished returns when the oldest Commit began that is not wholly in force, zero when all are.
func (p *pace) unfinished() time.Time {
	since := p.turns.since
	if oldest := p.deferral.Oldest(); !oldest.IsZero() && (since.IsZero() || oldest.Before(since)) {
		since = oldest
	}
	return since
}

// awaitUnfinished has prompt called when what waits is due, and returns what unfinished does.
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

// keep has a slot hold what it holds, as long as it is not laid out anew.
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

// awaitIdle waits for a quiet moment, if there is something to be done in one: a young
// segment that is more than half full. It is called after every commit; a commit that
// was such a moment did what could be done.
func (r *Renderer) awaitIdle() {
	if r.options.Pacing.CompactAfter < 0 || r.pace.compacting || r.mirror == nil || !r.slots.isDue(&r.bounds) {
		r.pace.idle.Cancel()
	} else {
		r.pace.idle.Wait(r.options.Pacing.CompactAfter, r.link.Prompt)
	}
	r.pace.compacting = false
}

// isDue reports whether a quiet moment is to be used to make room.
func (a *slots) isDue(b *bounds) bool {
	for _, s := range a.byName {
		if b.isDueAt(s) {
			return true
		}
	}
	return false
}

// defaultCompactAfter is short beside the time in which young segments fill up, and long
// beside the pauses in a burst of changes.
const defaultCompactAfter = 10 * time.Second
