package acl

import (
	"slices"
	"time"
)

// defaultQuiet is short beside the time in which young segments fill up, and long
// beside the pauses in a burst of changes.
const defaultQuiet = 10 * time.Second

// rest waits for a quiet moment, if there is something to be done in one: a young
// segment that is more than half full. It is called after every commit; a commit that
// was such a moment did what could be done. Called with the lock held.
func (r *Renderer) rest() {
	wasQuiet := r.calm
	r.calm = false
	if r.quiet != nil {
		r.quiet.Stop()
	}
	if r.options.Quiet < 0 || wasQuiet || r.mirror == nil || !r.isDue() {
		return
	}
	r.rested = time.Now()
	if r.quiet == nil {
		r.quiet = time.AfterFunc(r.options.Quiet, r.wake)
	} else {
		r.quiet.Reset(r.options.Quiet)
	}
}

// wake tells the owner that it is quiet, unless somebody has committed meanwhile.
func (r *Renderer) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link.Closed() || time.Since(r.rested) < r.options.Quiet {
		return
	}
	r.calm = true
	r.link.Prompt()
}

// isDue says whether a quiet moment is to be used to make room.
func (r *Renderer) isDue() bool {
	for _, s := range r.slots {
		if r.sizes.isDue(s) {
			return true
		}
	}
	return false
}

// isDue says whether a slot has a young segment that is more than half full.
func (z sizes) isDue(s *slot) bool {
	if s.name == youngSlot {
		return slices.ContainsFunc(s.want, func(p piece) bool { return p.count > z.peers/2 })
	}
	for n, p := range s.want {
		if s.role(n).kind == young && p.count > z.young/2 {
			return true
		}
	}
	return false
}
