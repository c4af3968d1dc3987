package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// findings collects what is wrong with the fields of one object.
type findings struct {
	object   string
	problems []api.Problem // the first model.MaxProblems
	more     int           // that followed
}

// all returns the problems, and how many there are beyond those that are told.
func (f *findings) all() []api.Problem {
	if f.more == 0 {
		return f.problems
	}
	return append(f.problems, api.Problem{Object: f.object, Reason: fmt.Sprintf("has %d more problems", f.more)})
}

func (f *findings) add(path *field.Path, reason string) {
	if len(f.problems) == model.MaxProblems {
		f.more++
		return
	}
	f.problems = append(f.problems, api.Problem{Object: f.object, Field: path.String(), Reason: reason})
}

// place is a field of an object, where what is wrong with it is reported. The zero path is the
// object itself.
type place struct {
	found *findings
	path  *field.Path
}

func (p place) child(name string, below ...string) place {
	return place{p.found, p.path.Child(name, below...)}
}
func (p place) index(i int) place  { return place{p.found, p.path.Index(i)} }
func (p place) key(k string) place { return place{p.found, p.path.Key(k)} }

// errorf reports what is wrong.
func (p place) errorf(format string, args ...any) { p.found.add(p.path, fmt.Sprintf(format, args...)) }
