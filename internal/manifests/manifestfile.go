package manifests

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

// errEmptied is the reason to keep the objects of a file without any content.
var errEmptied = errors.New("it has become empty: remove the file to delete its objects")

// read returns the state of the file after it was read again. It does not change f.
func (f manifestFile) read(path string, rd decode.Reading) manifestFile {
	content, err := readRegular(path)
	if err == nil && len(content) == 0 && len(f.inForce()) > 0 {
		err = errEmptied
	}
	if err != nil {
		next := f.lost()
		p := decode.Unreadable(path, err)
		p.Reason = withHeld(p.Reason, len(next.held))
		next.problems = append(next.problems, p)
		return next
	}
	sum := sha256.Sum256(content)
	if f.parsed && f.sum == sum {
		return f
	}
	next := manifestFile{sum: sum, parsed: true}
	next.parse(content, path, rd, f.inForce())
	return next
}

// parse fills the state from the content. What is refused holds its object of
// before.
func (f *manifestFile) parse(content []byte, path string, rd decode.Reading, before map[model.ID]manifest) {
	p := rd.Bytes(content, path)
	f.skipped = p.Skipped
	named := map[model.ID]bool{}
	for _, o := range p.Objects {
		msg, problems := toModel(rd, o)
		if msg == nil {
			for i := range problems {
				p.Refusals = append(p.Refusals, decode.Refusal{ID: o.ID(), Problem: problems[i]})
			}
			continue
		}
		named[o.ID()] = true
		f.current = append(f.current, manifest{object: o, msg: msg})
		f.problems = append(f.problems, problems...)
	}
	f.hold(p.Refusals, named, before)
}

// toModel converts an object, a legacy one in the form in which it is in force when
// it is: whether it is depends on other files too, and Directory.merge decides it.
func toModel(rd decode.Reading, o kinds.Object) (proto.Message, []api.Problem) {
	if rd.Legacy {
		o = legacy.Current(o)
	}
	return convert.ToModel(o)
}

// hold keeps the objects of before that refused documents were, or may have been,
// meant to be, and reports the refusals.
func (f *manifestFile) hold(refusals []decode.Refusal, named map[model.ID]bool, before map[model.ID]manifest) {
	f.held = map[model.ID]manifest{}
	lost := maps.Clone(before)
	maps.DeleteFunc(lost, func(id model.ID, _ manifest) bool { return named[id] })
	if slices.ContainsFunc(refusals, ofUnknown) {
		f.held = lost
	}
	for _, r := range refusals {
		holds := 0
		if ofUnknown(r) {
			holds = len(lost)
		} else if m, ok := lost[r.ID]; ok {
			f.held[r.ID] = m
			holds = 1
		}
		r.Problem.Reason = withHeld(r.Problem.Reason, holds)
		f.problems = append(f.problems, r.Problem)
	}
}

// ofUnknown says that it is not known which object was refused.
func ofUnknown(r decode.Refusal) bool { return r.ID == model.ID{} }

func withHeld(reason string, holds int) string {
	switch holds {
	case 0:
		return reason
	case 1:
		return reason + "; the last good version of the object stays in force"
	}
	return reason + "; the last good versions of the objects of the file stay in force"
}

// lost returns the state of a file of which there is nothing to read: everything
// that was in force is held.
func (f manifestFile) lost() manifestFile {
	return manifestFile{held: f.inForce()}
}

// inForce returns what the file gave last, the first object of each ID.
func (f manifestFile) inForce() map[model.ID]manifest {
	out := maps.Clone(f.held)
	if out == nil {
		out = map[model.ID]manifest{}
	}
	seen := map[model.ID]bool{}
	for _, m := range f.current {
		if id := m.object.ID(); !seen[id] {
			seen[id] = true
			out[id] = m
		}
	}
	return out
}
