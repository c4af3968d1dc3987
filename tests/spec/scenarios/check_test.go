package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// subject is a running fleet and the state that it received.
type subject struct {
	kind    backends.Kind
	options harness.Options
	flows   int // bound of the flows that a check asks about
	seed    uint64

	state   cluster.State
	objects harness.Objects
	running *harness.Cluster
	// wired is a second fleet that receives the same. Sessions last there: a check asks the first
	// one about flows and forgets them. It exists once a file has sent something.
	wired *harness.Cluster
}

// start makes a fleet and sends it a state.
func (s *subject) start(ctx context.Context, state cluster.State) error {
	var err error
	if s.objects, err = harness.Reflect(state); err != nil {
		return err
	}
	s.state = state
	if s.running, err = harness.New(s.kind, harness.NamesOf(state.Nodes), s.options); err != nil {
		return err
	}
	return s.resync(ctx)
}

func (s *subject) close() error {
	var errs []error
	for _, f := range []*harness.Cluster{s.running, s.wired} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// apply sends the differences of the next state to the running nodes.
func (s *subject) apply(ctx context.Context, next cluster.State) error {
	objects, err := harness.Reflect(next)
	if err != nil {
		return err
	}
	s.seed++
	changes := model.Changes{Deltas: objects.Since(s.objects, s.seed)}
	s.state, s.objects = next, objects
	for _, f := range []*harness.Cluster{s.running, s.wired} {
		if f == nil {
			continue
		}
		if err := f.Apply(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}

// wire returns the fleet on which sessions last.
func (s *subject) wire(ctx context.Context) (*harness.Cluster, error) {
	var err error
	if s.wired == nil {
		s.seed++
		s.wired, err = s.running.Anew(ctx, s.objects, s.seed)
	}
	return s.wired, err
}

// expected returns what must be true now.
func (s *subject) expected() *harness.Expected { return s.running.Expect(s.state) }

// check proves everything that must hold in every state.
func (s *subject) check(ctx context.Context, except ...harness.Invariant) error {
	s.seed++
	err := s.running.Check(ctx, harness.State{Expected: s.expected(), Objects: s.objects, Seed: s.seed, Flows: s.asked(), Except: except})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, harness.Manifests(s.state))
	}
	return err
}

// allowed asks the dataplanes about a flow, and the specification where they cannot judge it.
func (s *subject) allowed(f api.Flow) bool { return s.running.Does(f, s.expected().Oracle.Allowed(f)) }

// decides reports whether the dataplanes know an end.
func (s *subject) decides(e end) bool {
	for _, a := range e.addrs {
		for _, name := range s.running.Names() {
			if s.running.Node(name).Backend.Has(a) {
				return true
			}
		}
	}
	return false
}

// asked returns all flows of the state, or some where they are too many.
func (s *subject) asked() []api.Flow {
	space := cluster.FlowSpace(s.state)
	if space.Size() <= s.flows {
		return slices.Collect(space.All())
	}
	return space.Random(cluster.NewRand(s.seed), s.flows)
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (s *subject) resync(ctx context.Context) error {
	return s.running.Apply(ctx, s.objects.Changes(true, s.seed))
}

// restart replaces the agent of a node over its dataplane while the state changes to the
// next one, and returns how many operations that takes in the dataplane.
func (s *subject) restart(ctx context.Context, name string, next cluster.State) (int, error) {
	n := s.running.Node(name)
	if n == nil {
		return 0, fmt.Errorf("there is no node %q", name)
	}
	objects, err := harness.Reflect(next)
	if err != nil {
		return 0, err
	}
	s.seed++
	changes := model.Changes{Deltas: objects.Since(s.objects, s.seed)}
	s.state, s.objects = next, objects
	before := n.Backend.Operations()
	for _, f := range []*harness.Cluster{s.running, s.wired} {
		if f != nil {
			err = errors.Join(err, s.away(ctx, f, name, changes))
		}
	}
	return n.Backend.Operations() - before, err
}

// away sends changes to all nodes but one, which gets a new agent and receives everything.
func (s *subject) away(ctx context.Context, f *harness.Cluster, name string, changes model.Changes) error {
	if err := f.Restart(name); err != nil {
		return err
	}
	for _, other := range f.Names() {
		if other == name {
			continue
		}
		if err := f.Node(other).Plugin.Apply(ctx, changes); err != nil {
			return err
		}
	}
	return f.Node(name).Plugin.Apply(ctx, s.objects.Changes(true, s.seed))
}
