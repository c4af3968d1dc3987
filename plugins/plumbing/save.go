package plumbing

import (
	"github.com/sluice-net/sluice/plugins/keep"
)

// recall takes what the file says, because the store cannot be read.
func (w *Watcher) recall() (revision int64, ok bool) {
	h, entries, ok := w.file().Recall()
	if ok {
		w.replace(entries, h.Revision, false)
	}
	return h.Revision, ok
}

// save writes the file. It is small: the interfaces of one node.
func (w *Watcher) save() {
	keys := make(map[string][]byte, len(w.known))
	for key := range w.known {
		keys[key] = []byte{}
	}
	_ = w.file().Keep(w.revision, keys) // with the next change it is tried again
}

func (w *Watcher) file() keep.File {
	return keep.File{Path: w.cfg.File, Root: w.cfg.root(), Log: w.cfg.Log}
}
