package datasync

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/keep"
)

// recall puts the state of the file in force, because the store cannot be read. It is
// a resync like any other: what the store has then is compared with it.
func (w *Watcher) recall() {
	h, entries, err := keep.Load(w.cfg.File, model.Root(w.cfg.Prefix))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		w.cfg.Log.Warn("saved state cannot be used", "error", err)
		return
	}
	w.state.Lock()
	deltas := w.decoder.snapshot(entries, false)
	w.state.Unlock()
	w.highest = h.Revision
	w.draft.Saved, w.draft.Revision = h.Saved, h.Revision
	w.publish() // before anybody sees the state
	w.hand(func(p *pending) { p.replace(deltas, h.Revision) })
	w.cfg.Log.Warn("store does not answer, the saved state is in force", "saved", h.Saved, "revision", h.Revision, "objects", len(deltas))
}

// saving saves from time to time until what it returns is called, which saves for the
// last time.
func (w *Watcher) saving(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(w.cfg.SaveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.save()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		w.save()
	}
}

// save writes the file, when the store said anything new since the last time.
func (w *Watcher) save() {
	w.state.Lock()
	unsaved, known := w.unsaved, map[string][]byte(nil)
	if unsaved {
		known = maps.Clone(w.decoder.known)
	}
	w.unsaved = false
	w.state.Unlock()
	if !unsaved {
		return
	}
	h := keep.Header{Root: model.Root(w.cfg.Prefix), Revision: w.Status().Revision, Saved: time.Now().UTC()}
	if err := keep.Save(w.cfg.File, h, known); err != nil {
		w.cfg.Log.Warn("state cannot be saved for a start without the store", "error", err)
		w.state.Lock()
		w.unsaved = true
		w.state.Unlock()
	}
}
