package renderertest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// The checks after every event of a sequence.
const (
	checkCommit     = "commit"     // does not fail
	checkVerdicts   = "verdicts"   // match the rules
	checkInstalled  = "installed"  // equals what a new subject holds for the same state
	checkReferences = "references" // resolve, and every object is referenced
	checkOperations = "operations" // are zero for a state that already holds
)

// finding is the failure of one check.
type finding struct{ check, text string }

// runSequence sends a sequence to new subjects with every expander.
func runSequence(t *testing.T, factory Factory, s Sequence[ref, content]) {
	x := newInspection(s, func() Subject { return factory(t) })
	for _, e := range Expanders[ref, content]() {
		if Few() && e.Long {
			continue
		}
		if f := x.run(e.Name, e.Expand(s)); f != nil {
			t.Fatal(f)
		}
	}
	t.Logf("%d events, %d worlds, %d flows", x.events, len(x.known), len(x.flows))
}

// inspection is a sequence and the expectations for its worlds.
type inspection struct {
	sequence   Sequence[ref, content]
	newSubject func() Subject
	flows      []api.Flow
	known      map[string]expected // by the dump of a Recorder
	events     int                 // so far
}

func newInspection(s Sequence[ref, content], newSubject func() Subject) *inspection {
	return &inspection{sequence: s, newSubject: newSubject, flows: flowsOf(s), known: map[string]expected{}}
}

// failure is an event after which a check failed.
type failure struct {
	sequence, expander    string
	number, events, state int // of the event, from 1; of all events; of the base state, from 0
	before, after         string
	findings              []finding
}

// String describes the failure completely.
func (f *failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sequence %q, expander %q, event %d of %d, state %d:\n", f.sequence, f.expander, f.number, f.events, f.state)
	for _, found := range f.findings {
		fmt.Fprintf(&b, "check %s: %s\n", found.check, found.text)
	}
	fmt.Fprintf(&b, "before the event it was\n%s\nafter it should be\n%s", f.before, f.after)
	return b.String()
}

// run sends events to a new subject and returns the first failure.
func (x *inspection) run(expander string, events []event) (f *failure) {
	r := &runner{inspection: x, subject: x.newSubject(), model: NewRecorder("model", nil)}
	for i, e := range events {
		if _, ok := r.subject.(Restarter); e.Restart && !ok {
			continue
		}
		x.events++
		before := r.model.Dump()
		if findings := r.step(e); len(findings) > 0 {
			f = &failure{x.sequence.Name, expander, i + 1, len(events), e.State, before, r.model.Dump(), findings}
			break
		}
	}
	if err := shut(r.subject); err != nil && f == nil {
		f = &failure{sequence: x.sequence.Name, expander: expander, findings: []finding{{checkCommit, err.Error()}}}
	}
	return f
}

// shut closes a subject if it can be closed.
func shut(s Subject) error {
	if c, ok := s.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// runner is a subject that is being sent events.
type runner struct {
	*inspection
	subject Subject
	model   *Recorder
	world   world
}

// step sends an event and returns the failed checks.
func (r *runner) step(e event) []finding {
	before, operations := r.model.Dump(), r.subject.Operations()
	if e.Restart {
		if err := r.subject.(Restarter).Restart(); err != nil {
			return []finding{{checkCommit, fmt.Sprintf("restart: %v", err)}}
		}
	}
	if err := r.apply(e); err != nil {
		return []finding{{checkCommit, err.Error()}}
	}
	var out []finding
	if n := r.subject.Operations() - operations; n != 0 && r.model.Dump() == before {
		out = append(out, finding{checkOperations, fmt.Sprintf("an event that changes nothing in the end took %d", n)})
	}
	want, err := r.expected()
	if err != nil {
		return append(out, finding{checkCommit, err.Error()})
	}
	out = append(out, r.verdicts(want)...)
	out = append(out, inspect(r.subject, want)...)
	return append(out, r.again()...)
}

// apply sends an event to the model and to the subject.
func (r *runner) apply(e event) error {
	from := r.world
	r.world = e.After(from)
	for _, to := range []renderer.Renderer{r.model, r.subject.Renderer()} {
		if err := applyEvent(to, from, e); err != nil {
			return err
		}
	}
	if v := r.model.Violations(); len(v) > 0 {
		return fmt.Errorf("the sequence violates the contract: %s", strings.Join(v, "; "))
	}
	return nil
}

// applyEvent applies an event to a renderer whose world is from.
func applyEvent(to renderer.Renderer, from world, e event) error {
	c := renderer.Changes{Resync: e.Resync}
	apply(&c, from, e)
	return to.Apply(context.Background(), c)
}
