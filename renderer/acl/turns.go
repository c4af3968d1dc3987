package acl

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// A change of a large table that has interfaces switch one by one takes seconds on many of them. So
// a Commit stops between two slots after some time, and the next one, which knows what has come
// meanwhile, goes on with the slots whose content is the oldest. What only adds to the young segments
// does not take part: every Commit does it for all slots.

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

// inTurn divides the changes of a slot: what it returns is done at once, the rest when it is the
// turn of the slot.
func (w *wanted) inTurn(changes []change) (now []change) {
	i := slices.IndexFunc(changes, func(c change) bool { return c.paced })
	if i < 0 {
		return changes
	}
	w.slow = append(w.slow, changes[i:]...)
	return changes[:i]
}

// lineUp has the slots change first that have waited for the longest.
func (w *wanted) lineUp() {
	slices.SortStableFunc(w.slow, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.slot.turn.last, b.slot.turn.last), cmp.Compare(a.slot.name, b.slot.name))
	})
}

// takeTurns has slots change whose changes take long, one after the other, until it is time to look
// at what has come meanwhile. One at least has its turn.
func (w *wanted) takeTurns(ctx context.Context) error {
	left := make(map[*slot]bool)
	for i, c := range w.slow {
		isFirst := i == 0 || w.slow[i-1].slot != c.slot
		if isFirst && i > 0 && time.Since(w.r.turns.began) >= w.r.bounds.turns {
			for _, c := range w.slow[i:] {
				left[c.slot] = true
			}
			break
		}
		if err := w.change(ctx, w.slow[i:i+1]); err != nil {
			return err
		}
		if isFirst {
			w.r.turns.count++
			c.slot.turn.last = w.r.turns.count
		}
	}
	w.leave(left)
	return nil
}

// leave notes which slots wait for their turn. They hold what they held, and are laid out anew by
// the next Commit. Slots of refused tables go on waiting.
func (w *wanted) leave(left map[*slot]bool) {
	r := w.r
	r.turns.since = time.Time{}
	for s := range w.live {
		if !left[s] {
			s.turn.since = time.Time{}
			continue
		}
		if s.turn.since.IsZero() {
			s.turn.since = r.turns.began
		}
		if r.turns.since.IsZero() || s.turn.since.Before(r.turns.since) {
			r.turns.since = s.turn.since
		}
		s.keep(r.mirror)
	}
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
