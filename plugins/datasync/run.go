package datasync

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// Run follows the store until the context ends, and returns the context's error.
// It can run once.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return errors.New("the watcher of the store runs already")
	}
	defer close(w.done)
	if w.cfg.File != "" {
		w.remember()
		defer w.saving(ctx)()
	}
	return follow.Run(ctx, follow.Config{
		Store: w.cfg.Store, Prefix: model.Root(w.cfg.Prefix), What: "policy state", Log: w.cfg.Log,
		MinBackoff: w.cfg.MinBackoff, MaxBackoff: w.cfg.MaxBackoff, Proof: &w.proof,
		Snapshot: w.snapshot, Deliver: w.deliver, Failed: w.failed, Recall: w.load, Needed: w.cfg.Needed,
	})
}

// snapshot makes a complete state pending.
func (w *Watcher) snapshot(s follow.Snapshot) {
	deltas := w.decode(func() []model.Delta { return w.decoder.snapshot(s.Entries) })

	now := time.Now()
	w.draft.Snapshots = w.draft.withOne(s.Reason, now)
	w.draft.Following, w.draft.Since, w.draft.Revision, w.draft.Handed = true, now, s.Revision, s.Revision
	w.draft.Saved, w.draft.Heard = time.Time{}, now
	w.draft.Changed = min(w.draft.Changed, s.Revision) // another store may have begun anew
	w.publish()                                        // before the consumer sees the state
	w.hand(func(p *pending) { p.replace(deltas, s.Revision) })
}

// deliver handles the changes of a watch. Nothing waits for it, so it may decode.
func (w *Watcher) deliver(entries []model.Entry, revision int64) {
	var deltas []model.Delta
	if len(entries) > 0 {
		deltas = w.decode(func() []model.Delta { return w.decoder.deltas(entries) })
	}
	w.hand(func(p *pending) {
		// A new revision alone does not wake the consumer.
		if len(deltas) > 0 || !p.empty() {
			p.merge(deltas, revision)
		}
	})
	w.draft.Revision, w.draft.Heard = revision, time.Now()
	if len(deltas) > 0 {
		w.draft.Changed, w.draft.Handed = revision, revision
	}
	w.publish()
}

// decode runs a function that changes the decoder.
func (w *Watcher) decode(change func() []model.Delta) []model.Delta {
	w.state.Lock()
	defer w.state.Unlock()
	w.unsaved = true
	return change()
}

// failed records that the store is not followed at the moment.
func (w *Watcher) failed(err error) {
	if w.draft.Following {
		w.draft.Following, w.draft.Since = false, time.Now()
	}
	w.draft.LastError = err.Error()
	w.publish()
}
