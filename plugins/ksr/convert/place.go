package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// findings collects the problems of one object.
type findings struct {
	object   string
	problems []api.Problem // the first model.MaxProblems
	more     int           // number of further ones
}

// all returns the problems, and one more with the number of those not listed.
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

// place is the path of a field in an object, for problems. The zero path is the object itself.
type place struct {
	found *findings
	path  *field.Path
}

func (p place) child(name string, below ...string) place {
	return place{p.found, p.path.Child(name, below...)}
}
func (p place) index(i int) place  { return place{p.found, p.path.Index(i)} }
func (p place) key(k string) place { return place{p.found, p.path.Key(k)} }

// errorf records a problem.
func (p place) errorf(format string, args ...any) { p.found.add(p.path, fmt.Sprintf(format, args...)) }
