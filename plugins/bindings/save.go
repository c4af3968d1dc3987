package bindings

import (
	"github.com/sluice-net/sluice/plugins/statefile"
)

// remember has what the file says count as known: a store that is empty is then not believed. It is
// no answer yet, because the store may know better.
func (w *Watcher) remember() {
	_, entries, err := statefile.Load(w.cfg.File, w.cfg.root())
	if err != nil {
		return // recall says why, where the file is needed
	}
	for _, e := range entries {
		w.note(e)
	}
}

// load takes what the file says, because the store cannot be read.
func (w *Watcher) load() (revision int64, ok bool) {
	h, entries, ok := w.file().Load()
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
	_ = w.file().Save(statefile.Header{Revision: w.revision}, keys) // with the next change it is tried again
}

func (w *Watcher) file() statefile.File {
	return statefile.File{Path: w.cfg.File, Root: w.cfg.root(), Log: w.cfg.Log}
}
