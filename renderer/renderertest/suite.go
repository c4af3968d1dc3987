package renderertest

import (
	"context"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Subject is a renderer under test, together with its dataplane.
type Subject interface {
	// Renderer returns the renderer. It is always the same, unless the Subject is restarted.
	Renderer() renderer.Renderer
	// Verdict returns what the dataplane does now with the first packet of a flow. An address
	// without a rendered pod is behind the uplink.
	Verdict(f api.Flow) api.Action
	// Operations returns the number of changes that the renderer has made in the dataplane; reads
	// do not count.
	Operations() int
	// FailNext makes the n-th next call to the dataplane fail; 1 is the very next. 0 cancels an
	// injected failure that has not occurred yet. Calls after the failed one work.
	FailNext(n int)
}

// Inspector is a Subject whose content can be inspected. The content after any path to a state is
// compared with that of a new Subject.
type Inspector interface {
	// Installed prints everything in the dataplane that must depend only on the current state, and
	// nothing that may depend on history.
	Installed() (string, error)
	// Dangling returns every unresolved reference in the dataplane, and every object of the
	// renderer without a reference to it.
	Dangling() []string
}

// Restarter is a Subject whose renderer can be replaced.
type Restarter interface {
	// Restart closes the renderer and starts a new one on the same dataplane, without any state.
	// From then on Renderer returns the new one.
	Restart() error
}

// Narrow is a Subject whose dataplane cannot distinguish all flows. It never permits more than the
// rules.
type Narrow interface {
	// Narrows reports whether the dataplane may deny a flow that the rules permit.
	Narrows(f api.Flow) bool
}

// Partial is a Subject whose dataplane can judge only some flows. The other flows have no verdict.
type Partial interface {
	// Sees reports whether the dataplane can judge the flow.
	Sees(f api.Flow) bool
}

// Batched is a Subject for which verdicts on many flows together are much cheaper than one by one.
type Batched interface {
	// Judge announces the flows for which Verdict will be called. The Subject sees all of them.
	Judge(flows []api.Flow)
}

// accepts reports whether the verdict of the dataplane is correct, as far as the dataplane can
// tell.
func accepts(s Subject, f api.Flow, want api.Action) (got api.Action, ok bool) {
	if p, partial := s.(Partial); partial && !p.Sees(f) {
		return want, true
	}
	got = s.Verdict(f)
	n, narrow := s.(Narrow)
	return got, got == want || got == api.Deny && narrow && n.Narrows(f)
}

// judge announces the flows of a check.
func judge[Q any](s Subject, questions []Q, flow func(Q) api.Flow) {
	b, ok := s.(Batched)
	if !ok {
		return
	}
	partial, _ := s.(Partial)
	var flows []api.Flow
	for _, q := range questions {
		if f := flow(q); partial == nil || partial.Sees(f) {
			flows = append(flows, f)
		}
	}
	b.Judge(flows)
}

// Factory returns a new Subject with an empty dataplane. It must be possible to attach the pods in
// PodIDs: either the dataplane knows them from the start, or the Subject attaches a pod when it is
// rendered. A Subject that is an io.Closer is closed after its scenario.
type Factory func(t testing.TB) Subject

// TB is the part of testing.TB that scenarios need.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Run is the conformance suite. It runs every scenario, and every sequence with all expanders, as a
// subtest on new Subjects. A Recorder with the same transactions provides the expected verdicts.
// Short runs skip the expanders with many events.
func Run(t *testing.T, factory Factory) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, oneAtATime(t, factory))
		})
	}
	for _, s := range sequences {
		t.Run("sequence: "+s.Name, func(t *testing.T) { runSequence(t, factory, s) })
	}
	t.Run("random sequences are enforced, whatever fails", func(t *testing.T) { runRandom(t, factory) })
}

// scenario is one test of the suite. It may create any number of Subjects, and uses the last one.
type scenario struct {
	name string
	run  func(t TB, newSubject func() Subject)
}

var scenarios = concat(openScenarios, listScenarios, setScenarios, podScenarios, resyncScenarios, failureScenarios)

func concat(groups ...[]scenario) (all []scenario) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// oneAtATime returns a function that creates Subjects. It closes each one when the next is created,
// or when the test ends.
func oneAtATime(t testing.TB, factory Factory) func() Subject {
	var last Subject
	end := func() {
		if last == nil {
			return
		}
		if err := shut(last); err != nil {
			t.Errorf("close the subject: %v", err)
		}
		last = nil
	}
	t.Cleanup(end)
	return func() Subject {
		end()
		last = factory(t)
		return last
	}
}

// rig is a Subject with the Recorder that provides the expected verdicts.
type rig struct {
	t       TB
	subject Subject
	model   *Recorder
}

func newRig(t TB, subject Subject) *rig {
	return &rig{t: t, subject: subject, model: NewRecorder("model", t)}
}

// change adds to changes.
type change func(*renderer.Changes)

// begin applies a change to the model, and returns it for the subject.
func (r *rig) begin(resync bool, c change) renderer.Changes {
	r.t.Helper()
	changes := renderer.Changes{Resync: resync}
	c(&changes)
	if err := r.model.Apply(context.Background(), changes); err != nil {
		r.t.Fatalf("the model failed: %v", err)
	}
	return changes
}

// try has the subject apply changes.
func (r *rig) try(c renderer.Changes) error {
	return r.subject.Renderer().Apply(context.Background(), c)
}

// apply applies a change that must succeed, and checks verdicts.
func (r *rig) apply(c change) {
	r.t.Helper()
	r.applyAll(r.begin(false, c))
	r.check()
}

// resync is apply with a resync.
func (r *rig) resync(c change) {
	r.t.Helper()
	r.applyAll(r.begin(true, c))
	r.check()
}

func (r *rig) applyAll(c renderer.Changes) {
	r.t.Helper()
	if err := r.try(c); err != nil {
		r.t.Fatalf("apply: %v", err)
	}
}

// check compares the verdicts of all fixture flows.
func (r *rig) check() {
	r.t.Helper()
	r.checkFlows(allFlows)
}

func (r *rig) checkFlows(flows []api.Flow) {
	r.t.Helper()
	wrong := 0
	judge(r.subject, flows, func(f api.Flow) api.Flow { return f })
	for _, f := range flows {
		want := r.model.Verdict(f)
		if got, ok := accepts(r.subject, f, want); !ok {
			if wrong++; wrong <= 5 {
				r.t.Errorf("flow %s: the stack says %s, want %s", f, got, want)
			}
		}
	}
	if wrong > 0 {
		r.t.Fatalf("%d of %d flows are wrong with\n%s", wrong, len(flows), r.model.Dump())
	}
}

// want checks a verdict that the scenario states itself, which also tests the model.
func (r *rig) want(action api.Action, f api.Flow) {
	r.t.Helper()
	if got, ok := accepts(r.subject, f, action); !ok {
		r.t.Fatalf("flow %s: the stack says %s, want %s; installed should be\n%s", f, got, action, r.model.Dump())
	}
}

// operations returns the number of operations of a step in the dataplane.
func (r *rig) operations(step func()) int {
	r.t.Helper()
	before := r.subject.Operations()
	step()
	return r.subject.Operations() - before
}
