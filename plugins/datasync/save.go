package datasync

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/statefile"
)

// remember reads from the file which state was in force at the end of the last run, to compare the
// store with it. It also accepts a file of another prefix: the prefix may be wrong.
func (w *Watcher) remember() {
	h, entries, err := statefile.Load(w.cfg.File, model.Root(w.cfg.Prefix))
	switch {
	case h.Marker != nil:
		w.proof.last, w.proof.highest, w.proof.newest = h.Marker, h.Revision, h.Newest
	case err == nil: // of a version without markers
		w.proof.last = &model.Marker{Counts: model.CountsOf(model.Root(w.cfg.Prefix), entries)}
	}
}

// load puts the state of the file in force, because the store cannot be read. It is a resync like
// any other: later the content of the store is compared with it.
func (w *Watcher) load() (revision int64, ok bool) {
	h, entries, ok := w.file().Load()
	if !ok {
		return 0, false
	}
	w.state.Lock()
	deltas := w.decoder.snapshot(entries)
	w.state.Unlock()
	w.draft.Saved, w.draft.Revision = h.Saved, h.Revision
	w.publish() // before the consumer sees the state
	w.hand(func(p *pending) { p.replace(deltas, h.Revision) })
	return h.Revision, true
}

// saving saves periodically until the returned function is called, which saves once more.
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

// save writes the file if something changed since the last time.
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
	s := w.Status()
	if !w.file().Save(statefile.Header{Revision: s.Revision, Newest: s.Newest, Marker: s.Marker}, known) {
		w.state.Lock()
		w.unsaved = true
		w.state.Unlock()
	}
}

func (w *Watcher) file() statefile.File {
	return statefile.File{Path: w.cfg.File, Root: model.Root(w.cfg.Prefix), Log: w.cfg.Log}
}
