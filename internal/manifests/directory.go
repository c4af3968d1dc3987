package manifests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"

	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"

	"github.com/sluice-net/sluice/plugins/ksr/decode"
)

// Directory reflects a directory of manifests and follows its edits.
//
// An object that was good and whose manifest is now wrong stays in force in its
// last good version: a mistake in a manifest deletes nothing. If it is unknown
// which object a wrong document was meant to be, all objects of its file stay. The
// same holds for a file that cannot be read or has become empty, as editors may
// leave it for a moment. An object is deleted when its file is deleted, or when the
// file is valid and no longer names it. A legacy policy is also deleted when its
// namespace is no longer isolated. The policy that isolates a namespace is deleted
// with the annotation, but not with the manifest of the namespace while policies
// are left.
//
// It changes and deletes only objects that it has itself written to the store. Its
// methods may be called by several goroutines.
type Directory struct {
	dir       string
	reading   decode.Reading
	reflector *reflect.Reflector
	log       *slog.Logger
	report    func(Load)

	mu    sync.Mutex
	files map[string]manifestFile
	// given holds the bytes of what the store got from here; nil bytes when a
	// write failed, so that it is not known whether it did.
	given map[model.ID][]byte
}

// manifestFile is the newest state of a file, together with what of its older
// states is still in force.
type manifestFile struct {
	sum      [sha256.Size]byte // of the content that it was made from
	parsed   bool              // from such content, and not kept because there was none
	current  []manifest        // in the order of the file
	held     map[model.ID]manifest
	problems []api.Problem
	skipped  []string // as in Load
}

// manifest is an object and what it is converted to.
type manifest struct {
	object kinds.Object // as it was read, so also a legacy one
	msg    proto.Message
}

// NewDirectory returns a source that reads the tree of dir and writes with r.
// After every load it calls report, unless that is nil, with the objects in force
// and everything that is wrong; report must not call the Directory.
func NewDirectory(dir string, r *reflect.Reflector, log *slog.Logger, report func(Load), opts ...Option) *Directory {
	if report == nil {
		report = func(Load) {}
	}
	return &Directory{dir: dir, reading: readingOf(opts), reflector: r, log: log, report: report,
		files: map[string]manifestFile{}, given: map[model.ID][]byte{}}
}

// Sync loads the directory and writes the difference to what it gave the store
// before. Problems of the manifests are reported and are no error; when the
// directory itself cannot be listed, nothing changes. After an error the next
// Sync writes the rest again.
func (d *Directory) Sync(ctx context.Context) (reflect.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tree, err := listManifests(d.dir)
	if err != nil {
		return reflect.Stats{}, fmt.Errorf("sync manifests: %w", err)
	}
	for path := range d.files {
		if _, listed := slices.BinarySearch(tree.files, path); !listed && !tree.isShadowed(path) {
			delete(d.files, path)
		}
	}
	for _, path := range tree.files {
		d.files[path] = d.files[path].read(path, d.reading)
	}
	for path, f := range d.files {
		if tree.isShadowed(path) {
			d.files[path] = f.lost()
		}
	}
	load, msgs := d.merge(tree)
	d.report(load)
	return d.write(ctx, load.Objects, msgs)
}

// isShadowed reports whether a path, or a directory above it, is among what could not be
// read, so that its absence says nothing.
func (t *manifestTree) isShadowed(path string) bool {
	for bad := range t.bad {
		if rest, ok := strings.CutPrefix(path, bad); ok && (rest == "" || rest[0] == os.PathSeparator) {
			return true
		}
	}
	return false
}

// merge returns what is in force, each ID once. What files say now goes before
// what is held of their past.
func (d *Directory) merge(tree manifestTree) (Load, map[model.ID]proto.Message) {
	load := Load{Files: len(tree.files), Problems: tree.problems()}
	m, msgs := newMerger(&load, d.reading), map[model.ID]proto.Message{}
	paths := slices.Sorted(maps.Keys(d.files))
	for _, path := range paths {
		f := d.files[path]
		load.Skipped = append(load.Skipped, f.skipped...)
		load.Problems = append(load.Problems, f.problems...)
		for _, c := range f.current {
			if m.object(c.object) {
				msgs[c.object.ID()] = c.msg
			}
		}
	}
	for _, path := range paths {
		held := d.files[path].held
		for _, id := range slices.SortedFunc(maps.Keys(held), compareIDs) {
			if msgs[id] == nil {
				m.object(held[id].object)
				msgs[id] = held[id].msg
			}
		}
	}
	if d.reading.Legacy {
		msgs = load.moderniseMessages(msgs)
	}
	return load, msgs
}

// moderniseMessages brings the legacy objects of a load to the form of today. It does
// so anew after every edit, because a namespace and its policies may stand in several
// files. The messages are those of the objects, see toModel; what is returned
// are those of the objects that are in force.
func (l *Load) moderniseMessages(msgs map[model.ID]proto.Message) map[model.ID]proto.Message {
	l.modernise()
	out := make(map[model.ID]proto.Message, len(msgs))
	for _, o := range l.Objects {
		id := o.ID()
		if out[id] = msgs[id]; out[id] == nil {
			out[id], _ = convert.ToModel(o) // one that Modernise made, which has no problems
		}
	}
	return out
}

// write gives the store what it did not get before.
func (d *Directory) write(ctx context.Context, objs []kinds.Object, msgs map[model.ID]proto.Message) (reflect.Stats, error) {
	if err := d.implied(ctx, objs, msgs); err != nil {
		return reflect.Stats{}, err
	}
	c := reflect.Change{Whole: len(d.given) == 0}
	want := make(map[model.ID][]byte, len(msgs))
	unchanged := 0
	for id, msg := range msgs {
		value, err := model.Encode(msg)
		if err != nil {
			return reflect.Stats{}, fmt.Errorf("sync manifests: %s: %w", id, err)
		}
		want[id] = value
		if given := d.given[id]; given != nil && bytes.Equal(given, value) {
			unchanged++
			continue
		}
		c.Put = append(c.Put, msg)
		d.given[id] = nil // until it is known to be written
	}
	for id := range d.given {
		if want[id] == nil {
			c.Remove = append(c.Remove, id)
			d.given[id] = nil
		}
	}
	if len(c.Put) == 0 && len(c.Remove) == 0 && !c.Whole {
		return reflect.Stats{Unchanged: unchanged}, nil
	}
	stats, _, err := d.reflector.Change(ctx, c)
	if err != nil {
		return stats, err
	}
	d.given = want
	stats.Unchanged += unchanged
	return stats, nil
}

// implied adds the namespaces that no manifest defines, except those that the
// store has from somewhere else: theirs are the true labels.
func (d *Directory) implied(ctx context.Context, objs []kinds.Object, msgs map[model.ID]proto.Message) error {
	for _, o := range kinds.ImpliedNamespaces(objs) {
		id := o.ID()
		msg, _ := convert.ToModel(o)
		if msg == nil {
			continue // no object can live there: its namespace was checked
		}
		if _, ours := d.given[id]; !ours {
			foreign, err := d.reflector.Differs(ctx, msg)
			if err != nil {
				return err
			}
			if foreign {
				continue
			}
		}
		msgs[id] = msg
	}
	return nil
}

func compareIDs(a, b model.ID) int { return strings.Compare(a.String(), b.String()) }
