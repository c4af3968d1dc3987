package statefile

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// File is where one owner saves the content of the store below a root. Errors are only logged: the
// file is needed only for a start without the store.
type File struct {
	Path string // if empty, nothing is saved or loaded
	Root string // of all keys
	Log  *slog.Logger
}

// Load returns the saved state, for an owner whose store does not answer. It returns false if there
// is none that can be used.
func (f File) Load() (h Header, entries []model.Entry, ok bool) {
	if f.Path == "" {
		return h, nil, false
	}
	h, entries, err := Load(f.Path, f.Root)
	if err == nil && h.Marker != nil {
		err = h.Marker.CheckLevel()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h, nil, false
	case err != nil:
		f.Log.Warn("saved state cannot be used", "error", err)
		return h, nil, false
	}
	f.Log.Info("saved state is in force until the store answers", "file", f.Path, "saved", h.Saved, "revision", h.Revision, "entries", len(entries))
	return h, entries, true
}

// Save replaces the saved state by the entries, by key, of the revision and the marker in the
// header. It reports whether that succeeded, or nothing is to be saved.
func (f File) Save(h Header, known map[string][]byte) bool {
	if f.Path == "" {
		return true
	}
	h.Root, h.Saved = f.Root, time.Now().UTC()
	if err := Save(f.Path, h, known); err != nil {
		f.Log.Warn("state could not be saved for a start without the store", "error", err)
		return false
	}
	return true
}
