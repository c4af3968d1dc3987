package replay

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// Subject is what judges flows. One goroutine uses it at a time.
type Subject interface {
	// Tell brings the subject to a state, and returns the number of objects that it sent.
	Tell(ctx context.Context, s cluster.State) (changes int, err error)
	// Allowed judges the first packet of a flow.
	Allowed(f api.Flow) bool
	// Why describes what happens to the first packet of a flow.
	Why(f api.Flow) string
	Close() error
}

// Partial is a Subject that does not judge all flows.
type Partial interface {
	// Sees reports whether it can be asked about a flow.
	Sees(f api.Flow) bool
	// Does is Allowed, except for flows that the subject denies only because it cannot express the
	// rule that permits them: for those it returns right.
	Does(f api.Flow, right bool) bool
}

// Directional is a Subject that judges each end of a flow by itself.
type Directional interface {
	Directions(f api.Flow) (egress, ingress bool)
}

// Resyncer is a Subject with state.
type Resyncer interface {
	// Resynced returns a new subject that receives at once the state that this one received step by
	// step, and describes the differences between what the two hold.
	Resynced(ctx context.Context) (Subject, string, error)
}

// Kind is how to make a subject for the nodes that have these names.
type Kind struct {
	Name string
	New  func(nodes []string) (Subject, error)
	// As of backends.Kind.
	On      func(t *testing.T) backends.Kind
	Missing func() error
	Slow    bool
}

// Need returns the kind for one test. It skips the test where this machine can have no subject.
func (k Kind) Need(t *testing.T) Kind {
	t.Helper()
	backends.Kind{Missing: k.Missing}.Need(t)
	if k.On == nil {
		return k
	}
	return Over(k.On(t))
}

// Kinds lists every subject that every machine has: the oracle, and a fleet over every such
// dataplane.
func Kinds() []Kind {
	return slices.DeleteFunc(kinds(backends.Usual()), func(k Kind) bool { return k.Missing != nil })
}

// Chosen lists every subject that is to be tested. What this machine cannot have is among them, so
// that its tests say that they skip: see Need.
func Chosen(t testing.TB) []Kind {
	t.Helper()
	return kinds(backends.Chosen(t))
}

func kinds(all []backends.Kind) []Kind {
	out := []Kind{{Name: "oracle", New: func([]string) (Subject, error) { return &judge{}, nil }}}
	for _, kind := range all {
		out = append(out, Over(kind))
	}
	return out
}

// Over returns how to make a fleet over a kind of backend as a subject.
func Over(kind backends.Kind) Kind {
	return Kind{
		Name: kind.Name, On: kind.On, Missing: kind.Missing, Slow: kind.Slow,
		New: func(nodes []string) (Subject, error) { return newFleet(kind, nodes) },
	}
}

// judge is the oracle as a Subject. It has no memory: every state makes a new one.
type judge struct{ *oracle.Oracle }

var (
	_ Subject     = (*judge)(nil)
	_ Directional = (*judge)(nil)
)

func (j *judge) Tell(_ context.Context, s cluster.State) (int, error) {
	j.Oracle = oracle.New(s)
	return 0, nil
}

func (j *judge) Why(f api.Flow) string { return reason.Of(j.Verdict(f)).String() }
func (j *judge) Close() error          { return nil }

func (j *judge) Directions(f api.Flow) (egress, ingress bool) {
	v := j.Verdict(f)
	return v.Egress.Allowed, v.Ingress.Allowed
}

// running is a fleet as a Subject.
type running struct {
	*harness.Cluster
	kind    backends.Kind
	objects harness.Objects // objects that it received; nil before the first resync
	steps   uint64
}

var (
	_ Subject  = (*running)(nil)
	_ Partial  = (*running)(nil)
	_ Resyncer = (*running)(nil)
)

func newFleet(kind backends.Kind, nodes []string) (*running, error) {
	f, err := harness.New(kind, nodes, harness.Options{})
	if err != nil {
		return nil, err
	}
	return &running{Cluster: f, kind: kind}, nil
}

// Tell sends what changed, in another order every time.
func (r *running) Tell(ctx context.Context, s cluster.State) (int, error) {
	next, err := harness.Reflect(s)
	if err != nil {
		return 0, err
	}
	r.steps++
	deltas := next.Since(r.objects, r.steps)
	if err := r.Apply(ctx, model.Changes{Resync: r.objects == nil, Deltas: deltas}); err != nil {
		return 0, err
	}
	r.objects = next
	return len(deltas), nil
}

func (r *running) Why(f api.Flow) string { return r.Trace(f) }

// Resynced implements Resyncer.
func (r *running) Resynced(ctx context.Context) (Subject, string, error) {
	anew, err := r.Anew(ctx, r.objects, r.steps+1)
	if err != nil {
		return nil, "", err
	}
	fresh := &running{Cluster: anew, kind: r.kind, objects: r.objects}
	installed, err := anew.Inspect(ctx)
	if err != nil {
		return fresh, "", err
	}
	s := harness.State{Expected: &harness.Expected{Fresh: installed}, Objects: r.objects, Except: []harness.Invariant{harness.Again}}
	if err := r.Check(ctx, s); err != nil {
		return fresh, err.Error(), nil
	}
	return fresh, "", nil
}
