package sequences

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// failure is an event after which something is wrong.
type failure struct {
	list, expander string
	number, events int // of the event, from 1; of all events
	event          event
	nodes          []*corev1.Node
	after          moment
	err            error // the invariants that do not hold
}

// String says everything that is needed to understand it.
func (f *failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "list %q, expander %q, event %d of %d, state %d: %s\n", f.list, f.expander, f.number, f.events, f.event.State, describe(f.event))
	fmt.Fprintf(&b, "%v\nthe state after the event:\n%s", f.err, harness.Manifests(stateOf(f.after, f.nodes)))
	return b.String()
}

// describe returns the changes of an event as text.
func describe(e event) string {
	var words []string
	if e.Restart {
		words = append(words, "restart")
	}
	if e.Resync {
		words = append(words, "resync")
	}
	for _, d := range e.Deltas {
		switch {
		case d.Gone:
			words = append(words, "-"+d.Key.String())
		case d.Value.stored == nil:
			words = append(words, "refused "+d.Key.String())
		default:
			words = append(words, fmt.Sprintf("%s (version %d)", d.Key, d.Value.number))
		}
	}
	return strings.Join(words, ", ")
}

// inspection brings fleets of one kind through one list, and knows what must be true
// in the states that it has met.
type inspection struct {
	list
	sequence sequence
	kind     backends.Kind
	silent   []*corev1.Node // nodes that no agent knows
	known    map[string]met // by digest
	space    space
	events   int // so far
}

func newInspection(kind backends.Kind, l list) *inspection {
	if l.nodes == nil {
		l.nodes = nodes()
	}
	x := &inspection{list: l, sequence: l.sequence(), kind: kind, known: map[string]met{}}
	if !slices.ContainsFunc(l.states, func(s cluster.State) bool { return len(s.Nodes) > 0 }) {
		x.silent = l.nodes
	}
	x.space = spaceOf(l)
	return x
}

// runner is a fleet on its way.
type runner struct {
	*inspection
	fleet *harness.Cluster
	now   moment
}

// run brings a new fleet through the events of an expander and returns the first
// failure.
func (x *inspection) run(ctx context.Context, expander renderertest.Expander[model.ID, *version]) (out *failure) {
	events := expander.Expand(x.sequence)
	fail := func(i int, e event, after moment, err error) *failure {
		return &failure{list: x.name, expander: expander.Name, number: i, events: len(events), event: e, nodes: x.silent, after: after, err: err}
	}
	f, err := harness.New(x.kind, harness.NamesOf(x.nodes), harness.Options{DenyNode: x.denyNode})
	if err != nil {
		return fail(0, event{}, nil, err)
	}
	r := &runner{inspection: x, fleet: f}
	defer func() {
		if err := f.Close(); err != nil && out == nil {
			out = fail(len(events), event{}, r.now, fmt.Errorf("close: %w", err))
		}
	}()
	// A node that has received nothing resyncs first, as with all event sources.
	if err := f.Apply(ctx, model.Changes{Resync: true}); err != nil {
		return fail(0, event{}, nil, err)
	}
	for i, e := range events {
		x.events++
		if err := r.step(ctx, e); err != nil {
			return fail(i+1, e, r.now, err)
		}
	}
	return nil
}

// step applies an event and returns the violation, if any.
func (r *runner) step(ctx context.Context, e event) error {
	before, operations := digestOf(r.now), r.fleet.Written()
	r.now = e.After(r.now)
	if err := r.tell(ctx, e); err != nil {
		return harness.Violated(harness.Converges, "%v", err)
	}
	var err error
	if digestOf(r.now) == before {
		still := harness.Again
		if e.Restart {
			still = harness.Restart
		}
		err = r.fleet.Untouched(still, operations, "an event that changes nothing in the end")
	}
	return errors.Join(err, r.check(ctx))
}

// tell restarts every agent if the event says so, and applies the event.
func (r *runner) tell(ctx context.Context, e event) error {
	if e.Restart {
		var errs []error
		for _, name := range r.fleet.Names() {
			errs = append(errs, r.fleet.Restart(name))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
	}
	return r.fleet.Apply(ctx, changesOf(e))
}
