package manifests

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
	"syscall"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

// Stdin is the path that stands for the standard input.
const Stdin = "-"

// Load is what was read from a number of files.
type Load struct {
	Objects  []kinds.Object // each ID once, in the order of the files
	Problems []api.Problem  // one for every bad document or object
	Notes    []api.Problem  // of Modernise, with AcceptLegacy; nothing is wrong there
	Skipped  []string       // objects of kinds that policy does not need, as Reference names them
	Files    int            // that were read
	// Controllers are those among what was skipped that find pods by labels.
	Controllers []decode.Controller
}

// Decode reads the objects of one stream, see decode.Reading. Of several objects with one ID the
// first stays. source names the stream in messages.
func Decode(r io.Reader, source string) ([]kinds.Object, []api.Problem) {
	var l Load
	m := newMerger(&l, decode.Reading{})
	m.add(m.reading.Read(r, source))
	return l.Objects, l.Problems
}

// Option changes what LoadFiles and NewDirectory read.
type Option func(*decode.Reading)

// AcceptLegacy reads policies of extensions/v1beta1 and the annotation of namespaces that isolated
// them, with the meaning that they had before Kubernetes 1.7. Modernise brings what is loaded to
// the form of today, as a whole.
func AcceptLegacy() Option { return func(r *decode.Reading) { r.Legacy = true } }

func readingOf(opts []Option) decode.Reading {
	var r decode.Reading
	for _, o := range opts {
		o(&r)
	}
	return r
}

// LoadFiles reads files and directories; "-" is read from stdin, which may be nil
// when no path is "-". Of a directory and the directories below it the files
// *.yaml, *.yml and *.json are read in the order of their paths, except hidden ones
// and backups of editors. A path that cannot be opened is an error; a file of a
// directory that cannot be read is a Problem. Of several objects with one ID the
// first stays.
func LoadFiles(paths []string, stdin io.Reader, opts ...Option) (Load, error) {
	var l Load
	m := newMerger(&l, readingOf(opts))
	if err := m.addPaths(paths, stdin); err != nil {
		return Load{}, err
	}
	if m.reading.Legacy {
		l.modernise()
	}
	return l, nil
}

// modernise brings the legacy objects of a load to the form of today.
func (l *Load) modernise() {
	m := legacy.Modernise(l.Objects, legacy.Before17)
	l.Objects, l.Notes = m.Objects, m.Notes
	l.Problems = append(l.Problems, m.Problems...)
}

// merger puts what files hold together.
type merger struct {
	load    *Load
	reading decode.Reading
	seen    map[model.ID]string         // where each object was read
	trees   map[model.ID]map[string]any // of the objects that were read with one
}

func newMerger(l *Load, r decode.Reading) *merger {
	return &merger{load: l, reading: r, seen: map[model.ID]string{}, trees: map[model.ID]map[string]any{}}
}

func (m *merger) addPaths(paths []string, stdin io.Reader) error {
	for _, path := range paths {
		if err := m.addPath(path, stdin); err != nil {
			return err
		}
		if path == Stdin {
			stdin = nil
		}
	}
	return nil
}

func (m *merger) addPath(path string, stdin io.Reader) error {
	if path == Stdin {
		if stdin == nil {
			return errors.New("the standard input can be read once only")
		}
		m.add(m.reading.Read(stdin, "stdin"))
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	if !info.IsDir() {
		return m.addNamed(path)
	}
	tree, err := listManifests(path)
	if err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	m.load.Problems = append(m.load.Problems, tree.problems()...)
	for _, file := range tree.files {
		content, err := readRegular(file)
		if err != nil {
			m.load.Problems = append(m.load.Problems, decode.Unreadable(file, err))
			continue
		}
		m.add(m.reading.Bytes(content, file))
	}
	return nil
}

// addNamed adds a file that the user named, which may also be a pipe, as of <(...) in a shell.
func (m *merger) addNamed(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	if info, statErr := f.Stat(); statErr == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeNamedPipe {
		return errors.Join(fmt.Errorf("load manifests: %s: %w, and no pipe", path, errNotRegular), f.Close())
	}
	m.add(m.reading.Read(f, path))
	return f.Close()
}

// readRegular reads a file of a directory. What has taken the place of the file that was listed is
// not waited for.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var content []byte
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errNotRegular
	case err == nil:
		content, err = decode.Bounded(f)
	}
	return content, errors.Join(err, f.Close())
}

func (m *merger) add(p decode.Parsed) {
	m.load.Files++
	m.load.Skipped = append(m.load.Skipped, p.Skipped...)
	m.load.Controllers = append(m.load.Controllers, p.Controllers...)
	for _, r := range p.Refusals {
		m.load.Problems = append(m.load.Problems, r.Problem)
	}
	for i, o := range p.Objects {
		if m.object(o) && p.Trees != nil {
			m.trees[o.ID()] = p.Trees[i]
		}
	}
}

// object adds an object and reports whether it is the first with its ID. What has no ID
// is always the first.
func (m *merger) object(o kinds.Object) bool {
	id := o.ID()
	if first, ok := m.seen[id]; ok && id != (model.ID{}) {
		m.load.Problems = append(m.load.Problems, api.Problem{Source: o.Source, Object: id.String(),
			Reason: "is defined in " + first + " already: that one stays, remove one of them"})
		return false
	}
	m.seen[id] = o.Source
	m.load.Objects = append(m.load.Objects, o)
	return true
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
		out = append(out, decode.Unreadable(path, err))
	}
	slices.SortFunc(out, func(a, b api.Problem) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

// ignored reports whether a name is hidden or that of an editor's backup.
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
