package statefile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/statefile"
)

func save(t *testing.T, known map[string][]byte) (string, statefile.Header) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	h := statefile.Header{Root: "/a/", Revision: 7, Saved: time.Unix(1e9, 0).UTC()}
	for range 2 { // the second replaces the first
		if err := statefile.Save(path, h, known); err != nil {
			t.Fatal(err)
		}
	}
	h.Entries = len(known)
	return path, h
}

func TestLoadReturnsSavedState(t *testing.T) {
	path, h := save(t, map[string][]byte{"/a/2": []byte("two"), "/a/1": {}, "/a/3": {0, 10, 255}})
	got, entries, err := statefile.Load(path, "/a/")
	want := []model.Entry{{Key: "/a/1", Value: []byte{}}, {Key: "/a/2", Value: []byte("two")}, {Key: "/a/3", Value: []byte{0, 10, 255}}}
	if err != nil || got != h || cmp.Diff(want, entries) != "" {
		t.Errorf("loaded %+v, %v, %v", got, entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if rest, err := os.ReadDir(filepath.Dir(path)); err != nil || len(rest) != 1 {
		t.Errorf("the directory holds %v, %v", rest, err)
	}
	if _, _, err := statefile.Load(path, "/b/"); err == nil {
		t.Error("the keys of another cluster are loaded")
	}
	if _, _, err := statefile.Load(path+"x", "/a/"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := statefile.Save(filepath.Join(path, "below"), h, nil); err == nil {
		t.Error("a file is a directory")
	}
}

func TestSaveRemovesWhatKilledProcessLeft(t *testing.T) {
	path, h := save(t, nil)
	for _, name := range []string{path + ".new", path + ".123456789", path + ".4294967295", path + ".interfaces", path + ".1x"} {
		if err := os.WriteFile(name, []byte("unfinished"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := statefile.Save(path, h, map[string][]byte{"/a/1": []byte("one")}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if d := cmp.Diff([]string{path, path + ".1x", path + ".interfaces"}, left); d != "" || err != nil {
		t.Errorf("%v, the directory holds (-want +got):\n%s", err, d)
	}
	if _, entries, err := statefile.Load(path, "/a/"); len(entries) != 1 || err != nil {
		t.Errorf("loaded %v, %v", entries, err)
	}
}

func TestLoadRefusesBrokenFile(t *testing.T) {
	path, _ := save(t, map[string][]byte{"/a/1": []byte("one"), "/a/2": []byte("two")})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(text) {
		flipped := append([]byte{}, text...)
		flipped[at] ^= 0x40
		for _, b := range [][]byte{flipped, text[:at], append(append([]byte{}, text...), 'x')} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := statefile.Load(path, "/a/"); err == nil {
				t.Fatalf("a file that is broken at %d is loaded", at)
			}
		}
	}
}

func TestFileLoadLogsOnly(t *testing.T) {
	var log bytes.Buffer
	f := statefile.File{Path: filepath.Join(t.TempDir(), "state"), Root: "/a/", Log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, _, ok := f.Load(); ok || log.Len() > 0 {
		t.Errorf("without a file: %v, %s", ok, &log)
	}
	if !f.Save(statefile.Header{Revision: 7}, map[string][]byte{"/a/1": []byte("one")}) {
		t.Error("nothing is kept")
	}
	h, entries, ok := f.Load()
	if !ok || h.Revision != 7 || time.Since(h.Saved) > time.Minute || len(entries) != 1 || entries[0].Key != "/a/1" {
		t.Errorf("recalled %+v, %v, %v", h, entries, ok)
	}
	other := f
	other.Root = "/b/"
	if _, _, ok := other.Load(); ok || !strings.Contains(log.String(), "cannot be used") {
		t.Errorf("what is another's is recalled: %v, %s", ok, &log)
	}
	other.Path = filepath.Join(f.Path, "below")
	if other.Save(statefile.Header{Revision: 8}, nil) || !strings.Contains(log.String(), "could not be saved") {
		t.Errorf("a file is a directory: %s", &log)
	}
	other.Path = ""
	if _, _, ok := other.Load(); ok || !other.Save(statefile.Header{Revision: 8}, nil) {
		t.Error("without a path something is kept")
	}
}

// TestFileLoadRefusesHigherLevel has the file of a newer agent: this one would enforce
// less than the policies in it say.
func TestFileLoadRefusesHigherLevel(t *testing.T) {
	var log bytes.Buffer
	f := statefile.File{Path: filepath.Join(t.TempDir(), "state"), Root: "/a/", Log: slog.New(slog.NewTextHandler(&log, nil))}
	for level, want := range map[int]bool{model.Level: true, model.Level + 1: false} {
		if !f.Save(statefile.Header{Revision: 1, Marker: &model.Marker{Cluster: "c", Level: level, Writer: "sluice-ksr v9"}}, map[string][]byte{"/a/b": {1}}) {
			t.Fatal("not saved")
		}
		_, entries, ok := f.Load()
		if ok != want || len(entries) > 0 != want || strings.Contains(log.String(), "upgrade sluice-agent") == want {
			t.Errorf("level %d: loaded %t, %d entries, log %s", level, ok, len(entries), log.String())
		}
		log.Reset()
	}
}
