package renderertest

import (
	"context"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Subject is a renderer under test, together with the stack below it.
type Subject interface {
	// Renderer returns the renderer; always the same one, unless it is restarted.
	Renderer() renderer.Renderer
	// Verdict says what the stack, as it is installed now, does with the first
	// packet of a flow. An address that no pod was rendered with is behind the
	// uplink.
	Verdict(f api.Flow) api.Action
	// Operations returns the number of changes that the renderer made in the stack
	// so far; reads do not count.
	Operations() int
	// FailNext makes the n-th next call to the stack fail, 1 being the very next;
	// 0 takes back what was not consumed yet. Calls after the failed one work.
	FailNext(n int)
}

// Inspector is a Subject that can be looked into. What it holds after any way to a
// state is then compared with what a new Subject holds.
type Inspector interface {
	// Installed prints everything in the stack that must be a function of what was
	// told last, and nothing that may depend on the way there.
	Installed() (string, error)
	// Dangling names every reference in the stack that leads to nothing, and every
	// object of the renderer's that nothing refers to.
	Dangling() []string
}

// Restarter is a Subject whose renderer can be replaced.
type Restarter interface {
	// Restart ends the renderer and starts a new one over the same stack, which is
	// told nothing yet. From then on Renderer returns the new one.
	Restart() error
}

// Narrow is a Subject whose stack cannot tell all flows apart. It never permits what the
// rules do not.
type Narrow interface {
	// Narrows says that the stack may deny a flow that the rules permit.
	Narrows(f api.Flow) bool
}

// Partial is a Subject whose stack cannot be asked about all flows. The others have no
// verdict.
type Partial interface {
	// Sees reports whether the stack tells the flow apart from others.
	Sees(f api.Flow) bool
}

// Batched is a Subject that takes long to be asked about one flow, and not much longer
// for many.
type Batched interface {
	// Judge says that Verdict will be asked about flows that the Subject sees.
	Judge(flows []api.Flow)
}

// accepts reports whether the verdict of a stack is what the rules say, as far as it can.
func accepts(s Subject, f api.Flow, want api.Action) (got api.Action, ok bool) {
	if p, partial := s.(Partial); partial && !p.Sees(f) {
		return want, true
	}
	got = s.Verdict(f)
	n, narrow := s.(Narrow)
	return got, got == want || got == api.Deny && narrow && n.Narrows(f)
}

// judge says which flows a check asks about.
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

// Factory returns a new Subject with an empty stack. The pods of PodIDs must be
// attachable to it: either the stack knows them from the start, or the Subject
// attaches a pod when it is rendered. A Subject that is an io.Closer is closed
// when a scenario is done with it.
type Factory func(t testing.TB) Subject

// TB is what scenarios need of a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Run is the conformance suite: it runs every scenario, and every sequence with all
// expanders, as a subtest, each against new Subjects. What a stack must do is said by
// a Recorder that is told the same transactions. Expanders that make many events are left
// out where little is drawn.
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

// scenario is one test of the suite. It may ask for any number of new Subjects, and uses
// the last one.
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

// oneAtATime returns new Subjects; each is closed when the next one is asked for, or the
// test ends.
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

// rig holds a Subject and the Recorder that is the truth for it.
type rig struct {
	t       TB
	subject Subject
	model   *Recorder
}

func newRig(t TB, subject Subject) *rig {
	return &rig{t: t, subject: subject, model: NewRecorder("model", t)}
}

// change fills a transaction.
type change func(renderer.Txn)

// begin tells a change to the model, and to a transaction of the subject that is
// left to the caller to commit.
func (r *rig) begin(resync bool, c change) renderer.Txn {
	r.t.Helper()
	model, txn := r.model.NewTxn(resync), r.subject.Renderer().NewTxn(resync)
	c(model)
	c(txn)
	if err := model.Commit(context.Background()); err != nil {
		r.t.Fatalf("the model failed: %v", err)
	}
	return txn
}

// apply commits a change that must work, and checks verdicts.
func (r *rig) apply(c change) {
	r.t.Helper()
	r.commit(r.begin(false, c))
	r.check()
}

// resync is apply with a resync.
func (r *rig) resync(c change) {
	r.t.Helper()
	r.commit(r.begin(true, c))
	r.check()
}

func (r *rig) commit(txn renderer.Txn) {
	r.t.Helper()
	if err := txn.Commit(context.Background()); err != nil {
		r.t.Fatalf("commit: %v", err)
	}
}

// check compares every flow of the cast.
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

// want checks one verdict that the scenario states itself, so that the model is
// tested as well.
func (r *rig) want(action api.Action, f api.Flow) {
	r.t.Helper()
	if got, ok := accepts(r.subject, f, action); !ok {
		r.t.Fatalf("flow %s: the stack says %s, want %s; installed should be\n%s", f, got, action, r.model.Dump())
	}
}

// operations returns how many operations in the stack a step needs.
func (r *rig) operations(step func()) int {
	r.t.Helper()
	before := r.subject.Operations()
	step()
	return r.subject.Operations() - before
}
