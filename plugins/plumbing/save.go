package plumbing

import (
	"errors"
	"io/fs"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/keep"
)

// recall takes what the file says, because the store cannot be read.
func (w *Watcher) recall() {
	h, entries, err := keep.Load(w.cfg.File, model.InterfaceRoot(w.cfg.Prefix, w.cfg.Node))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		w.cfg.Log.Warn("saved interfaces of pods cannot be used", "error", err)
		return
	}
	w.cfg.Log.Warn("store does not answer, the interfaces of pods are those that were saved", "saved", h.Saved, "interfaces", len(entries))
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
	h := keep.Header{Root: model.InterfaceRoot(w.cfg.Prefix, w.cfg.Node), Revision: w.highest, Saved: time.Now().UTC()}
	if err := keep.Save(w.cfg.File, h, keys); err != nil {
		w.cfg.Log.Warn("interfaces of pods cannot be saved for a start without the store", "error", err)
	}
}
