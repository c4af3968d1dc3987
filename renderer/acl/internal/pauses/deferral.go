package pauses

import (
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// maxDeferral is how long members wait at most, in addition to the time of the commit during which
// they arrive and of the one that applies them. They are in force after two seconds, as
// Pacing.PauseBudget promises.
const maxDeferral = 1500 * time.Millisecond

// Deferral sits between transactions and the cache. When VPP has been paused for longer than the
// budget permits, members that join sets wait here; the cache, and everything derived from it, does
// not know them yet.
//
// Only members that cannot deny anything wait. A member waits when every rule that names its set
// permits: with it each list permits at least as much, whatever the order of its rules. What both
// the old and the new rules permit must never be denied in between. So an address waits for no set
// while it leaves another one, or joins one that a rule denies. The waiting permit may have to
// replace the one that goes, or may precede the rule that denies. Nothing waits in a transaction
// with pods, because rules may change from one set to another.
type Deferral struct {
	cache stagingArea
	share float64       // of the time that pauses may take; 0: nothing waits
	total time.Duration // of all pauses
	took  time.Duration // duration of the last commit that paused VPP

	until   time.Time // end of the wait
	waiting []membership
	since   time.Time // when the oldest member began to wait

	whole  bool        // stage the transaction directly
	staged []setUpdate // of the transaction, when it is buffered
}

// stagingArea is where a Deferral stages changes: a *cache.Pair.
type stagingArea interface {
	cache.Staged
	// Named reports whether rules that permit, or that deny, name a set.
	Named(id api.SetID) (permits, denies bool)
}

// membership is a member that joins a set.
type membership struct {
	set    api.SetID
	member netip.Prefix
}

type setUpdate struct {
	set            api.SetID
	added, removed []netip.Prefix
}

// New returns a Deferral in front of a cache. share is the share of time that pauses may take.
func New(cache stagingArea, share float64) Deferral {
	return Deferral{cache: cache, share: share}
}

// Oldest returns when the oldest member began to wait, zero when none waits.
func (d *Deferral) Oldest() time.Time {
	if len(d.waiting) == 0 {
		return time.Time{}
	}
	return d.since
}

// Begin starts a transaction. Members may wait only if mayWait is true.
func (d *Deferral) Begin(now time.Time, mayWait bool) {
	if d.whole = !mayWait || !now.Before(d.Due(now)); d.whole {
		d.release()
	}
}

// Due returns when members that wait, or would begin to wait now, must be staged.
func (d *Deferral) Due(now time.Time) time.Time {
	latest := now
	if len(d.waiting) > 0 {
		latest = d.since
	}
	latest = latest.Add(max(0, maxDeferral-2*d.took))
	if d.until.Before(latest) {
		return d.until
	}
	return latest
}

// End stages a transaction that changes only members, except those that must wait.
func (d *Deferral) End(now time.Time) {
	if d.whole {
		return
	}
	strict := d.strict()
	mayWait := func(set api.SetID, p netip.Prefix) bool {
		permits, denies := d.cache.Named(set)
		return p.IsValid() && permits && !denies && !strict.OverlapsPrefix(renderer.Unmapped(p))
	}
	before := d.waiting
	d.waiting = nil
	for _, m := range before {
		d.add(m, mayWait(m.set, m.member), d.since)
	}
	for _, u := range d.staged {
		d.cache.UpdateSet(u.set, nil, u.removed)
		for _, p := range u.added {
			d.add(membership{u.set, p}, mayWait(u.set, p), now)
		}
	}
	d.staged = nil
}

// strict returns the addresses for which the transaction may deny something.
func (d *Deferral) strict() *bart.Lite {
	var out bart.Lite
	for _, u := range d.staged {
		list := u.removed
		if _, denies := d.cache.Named(u.set); denies {
			list = slices.Concat(list, u.added)
		}
		for _, p := range list {
			out.Insert(renderer.Unmapped(p))
		}
	}
	return &out
}

// add makes a member wait, or stages it.
func (d *Deferral) add(m membership, wait bool, since time.Time) {
	if !wait {
		d.cache.UpdateSet(m.set, []netip.Prefix{m.member}, nil)
		return
	}
	if len(d.waiting) == 0 {
		d.since = since
	}
	d.waiting = append(d.waiting, m)
}

// release stages all waiting members, and the buffered part of the transaction.
func (d *Deferral) release() {
	for _, m := range d.waiting {
		d.cache.UpdateSet(m.set, []netip.Prefix{m.member}, nil)
	}
	for _, u := range d.staged {
		d.cache.UpdateSet(u.set, u.added, u.removed)
	}
	d.waiting, d.staged, d.whole = nil, nil, true
}

// Paused records a commit that ended now: its duration, and for how long it paused VPP.
func (d *Deferral) Paused(took, pause time.Duration, now time.Time) {
	d.total += pause
	if d.share <= 0 || pause <= 0 {
		return
	}
	d.took = took
	wait := min(float64(pause)*(1/d.share-1), float64(maxDeferral))
	if until := now.Add(time.Duration(wait)); until.After(d.until) {
		d.until = until
	}
}

// Pauses returns the state for readers.
func (d *Deferral) Pauses() renderer.Pauses {
	return renderer.Pauses{Total: d.total, Waiting: len(d.waiting), Since: d.Oldest()}
}

// UpdateSet implements cache.Staged.
func (d *Deferral) UpdateSet(set api.SetID, added, removed []netip.Prefix) {
	if d.whole {
		d.cache.UpdateSet(set, added, removed)
		return
	}
	d.staged = append(d.staged, setUpdate{set, added, removed})
}

// SetPod implements cache.Staged.
func (d *Deferral) SetPod(id api.PodID, cfg renderer.PodConfig) {
	d.release()
	d.cache.SetPod(id, cfg)
}

// RemovePod implements cache.Staged.
func (d *Deferral) RemovePod(id api.PodID) {
	d.release()
	d.cache.RemovePod(id)
}

// BeginResync implements cache.Staged. A resync includes the waiting members.
func (d *Deferral) BeginResync() {
	d.release()
	d.cache.BeginResync()
}

// EndResync implements cache.Staged.
func (d *Deferral) EndResync() { d.cache.EndResync() }
