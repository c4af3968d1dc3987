package ksr

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Stdin is the path that stands for the standard input.
const Stdin = "-"

// Load is what was read from a number of files.
type Load struct {
	Objects  []Object      // each ID once, in the order of the files
	Problems []api.Problem // one for every bad document or object
	Skipped  int           // objects of kinds that policy does not need
	Files    int           // that were read
}

// LoadFiles reads files and directories; "-" is read from stdin, which may be nil
// when no path is "-". Of a directory and the directories below it the files
// *.yaml, *.yml and *.json are read in the order of their paths, except hidden ones
// and backups of editors. A path that cannot be opened is an error; a file of a
// directory that cannot be read is a Problem. Of several objects with one ID the
// first stays.
func LoadFiles(paths []string, stdin io.Reader) (Load, error) {
	var l Load
	m := newMerger(&l)
	for _, path := range paths {
		if err := m.addPath(path, stdin); err != nil {
			return Load{}, err
		}
		if path == Stdin {
			stdin = nil
		}
	}
	return l, nil
}

// merger puts what files hold together.
type merger struct {
	load *Load
	seen map[model.ID]string // where each object was read
}

func newMerger(l *Load) *merger { return &merger{load: l, seen: map[model.ID]string{}} }

func (m *merger) addPath(path string, stdin io.Reader) error {
	if path == Stdin {
		if stdin == nil {
			return errors.New("the standard input can be read once only")
		}
		m.add(parse(stdin, "stdin"))
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	if !info.IsDir() {
		p, err := parseFile(path)
		if err != nil {
			return fmt.Errorf("load manifests: %w", err)
		}
		m.add(p)
		return nil
	}
	tree, err := listManifests(path)
	if err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	m.load.Problems = append(m.load.Problems, tree.problems()...)
	for _, file := range tree.files {
		p, err := parseFile(file)
		if err != nil {
			m.load.Problems = append(m.load.Problems, unreadable(file, err))
			continue
		}
		m.add(p)
	}
	return nil
}

func (m *merger) add(p parsed) {
	m.load.Files++
	m.load.Skipped += p.skipped
	for _, r := range p.refusals {
		m.load.Problems = append(m.load.Problems, r.problem)
	}
	for _, o := range p.objects {
		m.object(o)
	}
}

// object adds an object and says whether it is the first with its ID.
func (m *merger) object(o Object) bool {
	id := o.ID()
	if first, ok := m.seen[id]; ok {
		m.load.Problems = append(m.load.Problems, api.Problem{Source: o.Source, Object: id.String(),
			Reason: "is defined in " + first + " already: that one stays, remove one of them"})
		return false
	}
	m.seen[id] = o.Source
	m.load.Objects = append(m.load.Objects, o)
	return true
}

func parseFile(path string) (parsed, error) {
	f, err := os.Open(path)
	if err != nil {
		return parsed{}, err
	}
	p := parse(f, path)
	return p, f.Close()
}

func unreadable(path string, err error) api.Problem {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err // the path is the source already
	}
	return api.Problem{Source: path, Reason: "cannot be read: " + err.Error()}
}

// manifestTree is what a directory of manifests holds. Paths begin with that of
// the directory and are sorted.
type manifestTree struct {
	dirs  []string         // it and the directories below it
	files []string         // the manifests
	bad   map[string]error // directories and entries that cannot be used
}

// listManifests lists a directory. Only a directory that cannot be listed itself
// is an error.
func listManifests(dir string) (manifestTree, error) {
	t := manifestTree{bad: map[string]error{}}
	if err := t.list(dir); err != nil {
		return manifestTree{}, err
	}
	slices.Sort(t.dirs)
	slices.Sort(t.files)
	return t, nil
}

var (
	errLinkedDir  = errors.New("it is a symbolic link to a directory, which is not followed")
	errNotRegular = errors.New("it is not a regular file")
)

func (t *manifestTree) list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	t.dirs = append(t.dirs, dir)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if ignored(entry.Name()) {
			continue
		}
		if entry.IsDir() {
			if err := t.list(path); err != nil {
				t.bad[path] = err
			}
			continue
		}
		info, err := os.Stat(path) // follows links, such as those of mounted ConfigMaps
		switch {
		case err != nil && isManifest(entry.Name()):
			t.bad[path] = err
		case err == nil && info.IsDir():
			t.bad[path] = errLinkedDir
		case err == nil && isManifest(entry.Name()) && !info.Mode().IsRegular():
			t.bad[path] = errNotRegular // reading a pipe would wait for ever
		case isManifest(entry.Name()):
			t.files = append(t.files, path)
		}
	}
	return nil
}

func (t *manifestTree) problems() []api.Problem {
	var out []api.Problem
	for path, err := range t.bad {
		out = append(out, unreadable(path, err))
	}
	slices.SortFunc(out, func(a, b api.Problem) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

// ignored says whether a name is hidden or that of an editor's backup.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~")
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
