package policytest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// brought is the objects of a step.
type brought struct {
	objects  []kinds.Object // each ID once
	problems Problems
}

// manifests reads files first, then inline objects, which replace what the files
// have under the same ID. The error is that of a path that cannot be opened.
func (f *File) manifests(s Step) (brought, error) {
	var out brought
	if len(s.Files) > 0 {
		load, err := manifests.LoadFiles(f.paths(s), nil)
		if err != nil {
			return out, fmt.Errorf("%s: %s: %w", f.Source, s.pathOf("files"), err)
		}
		out.objects, out.problems = load.Objects, load.Problems
	}
	out.inline(f, s)
	out.leaveOutRefused()
	return out, nil
}

// inline adds the objects that stand in the test itself.
func (m *brought) inline(f *File, s Step) {
	field := "objects"
	if s.Path != "" {
		field = "apply"
	}
	fromFiles := map[model.ID]int{}
	for i, o := range m.objects {
		fromFiles[o.ID()] = i
	}
	seen := map[model.ID]string{}
	for i, raw := range s.Objects {
		at := s.pathOf(fmt.Sprintf("%s[%d]", field, i))
		objects, problems := manifests.Decode(bytes.NewReader(raw), f.Source+": "+at)
		if m.problems = append(m.problems, problems...); len(objects)+len(problems) == 0 {
			m.fail(f, at, "is of no kind that policies know: want one of "+kindNames())
		}
		for _, o := range objects {
			id := o.ID()
			if first, ok := seen[id]; ok {
				m.fail(f, at, fmt.Sprintf("is %s, which is in %s already", id, first))
				continue
			}
			seen[id] = at
			if k, ok := fromFiles[id]; ok {
				m.objects[k] = o
			} else {
				m.objects = append(m.objects, o)
			}
		}
	}
}

// leaveOutRefused converts the objects as the store would get them, which finds
// what reading does not, and leaves out those that the store would never get: no
// subject is to know more than the others.
func (m *brought) leaveOutRefused() {
	m.objects = slices.DeleteFunc(m.objects, func(o kinds.Object) bool {
		msg, problems := convert.ToModel(o)
		m.problems = append(m.problems, problems...)
		return msg == nil
	})
}

func (m *brought) fail(f *File, path, reason string) {
	m.problems = append(m.problems, api.Problem{Source: f.Source, Field: path, Reason: reason})
}

// paths returns the files of a step, relative ones within the file's directory.
func (f *File) paths(s Step) []string {
	out := make([]string, len(s.Files))
	for i, p := range s.Files {
		if !filepath.IsAbs(p) {
			p = filepath.Join(f.Dir, filepath.FromSlash(p))
		}
		out[i] = p
	}
	return out
}

// deletions returns the objects that a step deletes, with everything that lives
// in the namespaces among them, as an API server would. What does not exist or is
// applied in the same step is a problem.
func (w *world) deletions(f *File, s Step, applied []kinds.Object) ([]model.ID, Problems) {
	var out []model.ID
	var problems Problems
	fail := func(i int, reason string) {
		problems = append(problems, api.Problem{Source: f.Source, Field: s.pathOf(fmt.Sprintf("delete[%d]", i)), Reason: reason})
	}
	gone := map[model.ID]int{}
	add := func(i int, id model.ID) {
		if _, ok := gone[id]; !ok {
			out = append(out, id)
			gone[id] = i
		}
	}
	for i, id := range s.Delete {
		if !w.exists(id) {
			fail(i, "there is no "+id.String())
			continue
		}
		add(i, id)
		if id.Kind == model.KindNamespace {
			for member := range w.members[id.Name] {
				add(i, member)
			}
		}
	}
	for _, o := range applied {
		id := o.ID()
		if i, ok := gone[id]; ok {
			fail(i, id.String()+" is deleted and applied in one step: make it two steps")
			continue
		}
		if i, ok := gone[model.ID{Kind: model.KindNamespace, Name: id.Namespace}]; ok && id.Namespace != "" {
			fail(i, id.String()+" is applied in the step that deletes its namespace: make it two steps")
		}
	}
	return out, problems
}
