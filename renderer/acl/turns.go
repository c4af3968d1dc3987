package acl

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
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

// pauses returns what readers see of them.
func (r *Renderer) pauses() renderer.Pauses {
	out := r.deferral.Pauses()
	out.Behind = r.turns.since
	return out
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

// rest waits for a quiet moment, if there is something to be done in one: a young
// segment that is more than half full. It is called after every commit; a commit that
// was such a moment did what could be done.
func (r *Renderer) rest() {
	if r.options.Quiet < 0 || r.calm || r.mirror == nil || !r.isDue() {
		r.quiet.Cancel()
	} else {
		r.quiet.Wait(r.options.Quiet, r.link.Prompt)
	}
	r.calm = false
}

// isDue says whether a quiet moment is to be used to make room.
func (r *Renderer) isDue() bool {
	for _, s := range r.slots.byName {
		if r.bounds.isDueAt(s) {
			return true
		}
	}
	return false
}

// defaultQuiet is short beside the time in which young segments fill up, and long
// beside the pauses in a burst of changes.
const defaultQuiet = 10 * time.Second
