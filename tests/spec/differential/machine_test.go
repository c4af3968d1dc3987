package differential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// patience is how long one event may take; it is over when something hangs.
const patience = 2 * time.Minute

// ErrImpossible is the error of an event after which the cluster is not one that can
// be judged: a pod or an agent is on no node. Only events that were changed by hand or
// by Minimise lead there.
var ErrImpossible = errors.New("impossible state")

// Options of a Machine.
type Options struct {
	Kind     backends.Kind
	DenyNode bool // traffic between a pod and its own node is restricted as all other
	Flows    int  // asked after an event; 0 is a few dozen
	Stride   int  // of the events after which nodes are compared with new ones; 0 is every event

	// What follows is for minimal cases: a flow that is asked after every event, and
	// the only invariant that matters.
	ask  api.Flow
	only harness.Invariant
}

const defaultFlows = 40

// Machine is a cluster that events happen to. It begins without anything. One
// goroutine uses it.
type Machine struct {
	Counts  Counts
	options Options
	fleet   *harness.Cluster
	state   cluster.State
	objects harness.Objects
}

// turn is one event as it is carried out.
type turn struct {
	Event
	before, after cluster.State
	old, objects  harness.Objects
	isNew         map[string]bool // nodes that have received nothing yet
}

// New returns a machine; Close must be called.
func New(o Options) (*Machine, error) {
	if o.Flows == 0 {
		o.Flows = defaultFlows
	}
	f, err := harness.New(o.Kind, nil, harness.Options{DenyNode: o.DenyNode})
	return &Machine{options: o, fleet: f, Counts: newCounts()}, err
}

// State returns the present state.
func (m *Machine) State() cluster.State { return m.state }

// Close stops every node.
func (m *Machine) Close() error { return m.fleet.Close() }

// Do lets an event happen and checks everything that must hold then. The error is a
// *harness.Violation when something does not.
func (m *Machine) Do(ctx context.Context, e Event) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := turn{Event: e, before: m.state, after: cluster.Edited(m.state, e.Edits), old: m.objects, isNew: map[string]bool{}}
	if err := m.possible(t); err != nil {
		return err
	}
	var err error
	if t.objects, err = harness.Reflect(t.after); err != nil {
		return err
	}
	if err := m.deliver(ctx, t); err != nil {
		return err
	}
	m.state, m.objects = t.after, t.objects
	m.Counts.event(e)
	return m.check(ctx, t)
}

// possible returns ErrImpossible for turns that cannot be judged.
func (m *Machine) possible(t turn) error {
	if t.Fate != RunsOn && m.fleet.Node(t.Node) == nil {
		return fmt.Errorf("%w: there is no node %q", ErrImpossible, t.Node)
	}
	for _, p := range t.after.Pods {
		if !slices.ContainsFunc(t.after.Nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			return fmt.Errorf("%w: pod %s/%s is on node %q", ErrImpossible, p.Namespace, p.Name, p.Spec.NodeName)
		}
	}
	return nil
}

// Finish ends every agent and starts it again, which must change nothing. Nodes are
// compared with new ones whatever the stride is.
func (m *Machine) Finish(ctx context.Context) error {
	m.options.Stride = 1
	for _, name := range m.fleet.Names() {
		if err := m.Do(ctx, Event{Action: restart, What: "nothing", Fate: Restarts, Node: name}); err != nil {
			return err
		}
	}
	return nil
}
