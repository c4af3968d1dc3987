package plumbing

import (
	"errors"
	"io/fs"
	"time"

	"github.com/sluice-net/sluice/plugins/keep"
)

// recall takes what the file says, because the store cannot be read.
func (w *Watcher) recall() {
	h, entries, err := keep.Load(w.cfg.File, w.cfg.root())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		w.cfg.Log.Warn("saved "+w.cfg.what()+" cannot be used", "error", err)
		return
	}
	w.cfg.Log.Warn("store does not answer, "+w.cfg.what()+" are those that were saved", "saved", h.Saved, "keys", len(entries))
	w.snapshot(entries, h.Revision)
}

// save writes the file. It is small: the interfaces of one node.
func (w *Watcher) save() {
	if w.cfg.File == "" {
		return
	}
	keys := make(map[string][]byte, len(w.known))
	for key := range w.known {
		keys[key] = []byte{}
	}
	h := keep.Header{Root: w.cfg.root(), Revision: w.highest, Saved: time.Now().UTC()}
	if err := keep.Save(w.cfg.File, h, keys); err != nil {
		w.cfg.Log.Warn(w.cfg.what()+" cannot be saved for a start without the store", "error", err)
	}
}
