package bindings

import (
	"github.com/sluice-net/sluice/plugins/statefile"
)

// remember marks the content of the file as known, so that an empty store is not believed. The
// content is not used for answers yet, because the store may be newer.
func (w *Watcher) remember() {
	_, entries, err := statefile.Load(w.cfg.File, w.cfg.root())
	if err != nil {
		return // load logs the reason if the file is needed
	}
	for _, e := range entries {
		w.applyEntry(e)
	}
}

// load uses the content of the file, because the store cannot be read.
func (w *Watcher) load() (revision int64, ok bool) {
	h, entries, ok := w.file().Load()
	if ok {
		w.replace(entries, h.Revision, false)
	}
	return h.Revision, ok
}

// save writes the file. It is small: it holds the interfaces of one node.
func (w *Watcher) save() {
	keys := make(map[string][]byte, len(w.known))
	for key := range w.known {
		keys[key] = []byte{}
	}
	_ = w.file().Save(statefile.Header{Revision: w.revision}, keys) // the next change tries again
}

func (w *Watcher) file() statefile.File {
	return statefile.File{Path: w.cfg.File, Root: w.cfg.root(), Log: w.cfg.Log}
}
