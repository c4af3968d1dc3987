package statefile

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// File is where one owner keeps what the store holds below a root. What goes wrong with
// it is told to the log and nobody else: only a start without the store needs a file.
type File struct {
	Path string // nothing is kept, or recalled, when empty
	Root string // of all keys
	Log  *slog.Logger
}

// Load returns what was kept, for an owner whose store does not answer; false when there
// is nothing, or nothing that can be used.
func (f File) Load() (h Header, entries []model.Entry, ok bool) {
	if f.Path == "" {
		return h, nil, false
	}
	h, entries, err := Load(f.Path, f.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h, nil, false
	case err != nil:
		f.Log.Warn("what was kept cannot be used", "error", err)
		return h, nil, false
	}
	f.Log.Info("saved state is in force until the store answers", "file", f.Path, "saved", h.Saved, "revision", h.Revision, "entries", len(entries))
	return h, entries, true
}

// Save replaces what was kept by the entries, by key, of the revision and the marker that the
// header names. It reports whether that is done, or nothing is to be kept.
func (f File) Save(h Header, known map[string][]byte) bool {
	if f.Path == "" {
		return true
	}
	h.Root, h.Saved = f.Root, time.Now().UTC()
	if err := Save(f.Path, h, known); err != nil {
		f.Log.Warn("state cannot be kept for a start without the store", "error", err)
		return false
	}
	return true
}
