package manifests

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/memstore"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// running is a Directory whose Run runs until the test ends.
type running struct {
	t       *testing.T
	dir     string
	store   *memstore.Store
	reports chan Load
}

func runDirectory(t *testing.T, dir string, store *memstore.Store) *running {
	r := &running{t: t, dir: dir, store: store, reports: make(chan Load, 1000)}
	d := NewDirectory(dir, reflect.NewReflector(store, memstore.Prefix, discard()), discard(), func(l Load) { r.reports <- l })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("run does not end with its context")
		}
	})
	return r
}

// until waits for a state of the store, which is looked at every few milliseconds
// because it changes after the report.
func (r *running) until(what string, holds func() bool) {
	r.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("%s: the store holds %v after %v", what, r.store.Keys(), patience)
		}
	}
}

func (r *running) untilKeys(what string, want ...string) {
	r.t.Helper()
	r.until(what, func() bool { return slices.Equal(r.store.Keys(), want) })
}

func TestDirectoryRunFollowsEdits(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a.yaml": samples.Namespace("a")})
	r := runDirectory(t, dir, memstore.New())
	r.untilKeys("at the start", "namespace/_/a")

	writeFiles(t, dir, map[string]string{"b.yaml": samples.Namespace("b")})
	r.untilKeys("a new file", "namespace/_/a", "namespace/_/b")

	writeFiles(t, dir, map[string]string{"b.yaml": samples.Namespace("c")})
	r.untilKeys("a changed file", "namespace/_/a", "namespace/_/c")

	writeFiles(t, dir, map[string]string{"sub/deep/d.yaml": samples.Namespace("d")})
	r.untilKeys("a file of new directories", "namespace/_/a", "namespace/_/c", "namespace/_/d")

	writeFiles(t, dir, map[string]string{"sub/deep/d.yaml": samples.Namespace("e")})
	r.untilKeys("a changed file of new directories", "namespace/_/a", "namespace/_/c", "namespace/_/e")

	writeFiles(t, dir, map[string]string{"a.yaml.tmp": samples.Namespace("f")})
	if err := os.Rename(filepath.Join(dir, "a.yaml.tmp"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.untilKeys("a file replaced by a rename", "namespace/_/c", "namespace/_/e", "namespace/_/f")

	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	r.untilKeys("a removed directory", "namespace/_/c", "namespace/_/f")
}

func TestDirectoryRunFollowsMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	writeFiles(t, dir, map[string]string{"..v1/a.yaml": samples.Namespace("a"), "..v2/a.yaml": samples.Namespace("b")})
	link("..v1", "..data")
	link("..data/a.yaml", "a.yaml")
	r := runDirectory(t, dir, memstore.New())
	r.untilKeys("the first version", "namespace/_/a")
	link("..v2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	r.untilKeys("the second version", "namespace/_/b")
}

func TestDirectoryRunBatchesEdits(t *testing.T) {
	dir := t.TempDir()
	r := runDirectory(t, dir, memstore.New())
	<-r.reports // the directory is watched from now on
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		files[name+".yaml"] = samples.Namespace(name)
	}
	writeFiles(t, dir, files)
	r.until("all files", func() bool { return len(r.store.Keys()) == len(files) })
	if n := len(r.reports); n >= len(files) {
		t.Errorf("%d loads of %d edits", n, len(files))
	}
}

func TestDirectoryRunRetriesFailedStore(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	store.Fail(errors.New("gone"), nil)
	writeFiles(t, dir, map[string]string{"a.yaml": samples.Namespace("a")})
	r := runDirectory(t, dir, store)
	<-r.reports
	store.Fail(nil, nil)
	r.untilKeys("after the failure", "namespace/_/a")
}

func TestDirectoryRunFollowsRecreatedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	writeFiles(t, dir, map[string]string{"a.yaml": samples.Namespace("a")})
	r := runDirectory(t, dir, memstore.New())
	r.untilKeys("at the start", "namespace/_/a")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"b.yaml": samples.Namespace("b")})
	r.untilKeys("another directory in its place", "namespace/_/b")
	writeFiles(t, dir, map[string]string{"c.yaml": samples.Namespace("c")})
	r.untilKeys("and its edits", "namespace/_/b", "namespace/_/c")
}
