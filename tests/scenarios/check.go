package scenarios

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
)

// subject is a running fleet and what it was told.
type subject struct {
	kind    backends.Kind
	options harness.Options
	flows   int // bound of the flows that a check asks about
	seed    uint64

	state   cluster.State
	objects harness.Objects
	running *harness.Cluster
	// wired is a second fleet that is told the same. Sessions last there: a check asks
	// the first one about flows and forgets them. It exists once a file has sent something.
	wired *harness.Cluster
}

// start makes a fleet and tells it a state.
func (s *subject) start(ctx context.Context, state cluster.State) error {
	var err error
	if s.objects, err = harness.Reflect(state); err != nil {
		return err
	}
	s.state = state
	s.running, err = s.fresh(ctx)
	return err
}

// fresh returns a new fleet that is told the present state at once.
func (s *subject) fresh(ctx context.Context) (*harness.Cluster, error) {
	f, err := harness.New(s.kind, harness.NamesOf(s.state.Nodes), s.options)
	if err != nil {
		return nil, err
	}
	s.seed++
	if err := f.Apply(ctx, model.Changes{Resync: true, Deltas: s.objects.All(s.seed)}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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

// apply tells the running nodes what is different in the next state.
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
		s.wired, err = s.fresh(ctx)
	}
	return s.wired, err
}

func (s *subject) oracle() *oracle.Oracle {
	return oracle.New(s.state, oracle.AllowNodeTraffic(!s.options.DenyNode))
}

// check proves everything that must hold in every state.
func (s *subject) check(ctx context.Context) error {
	for _, check := range []func(context.Context) error{s.checkVerdicts, s.checkFresh, s.checkAgain} {
		if err := check(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, harness.Manifests(s.state))
		}
	}
	return nil
}

// checkVerdicts compares the stacks with the oracle.
func (s *subject) checkVerdicts(context.Context) error {
	o := s.oracle()
	flows := slices.Collect(s.asked())
	s.running.Judge(flows)
	for _, f := range flows {
		if right := o.Allowed(f); s.running.Does(f, right) != right {
			return fmt.Errorf("%s is not what the specification says\n%s%s", f, s.running.Trace(f), reason.Of(o.Verdict(f)))
		}
	}
	return nil
}

// allowed asks the stacks about a flow. Of what they cannot tell the specification tells.
func (s *subject) allowed(f api.Flow) bool { return s.running.Does(f, s.oracle().Allowed(f)) }

// decides reports whether the stacks know an end.
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
func (s *subject) asked() iter.Seq[api.Flow] {
	space := cluster.FlowSpace(s.state)
	if size(space) <= s.flows {
		return space.All()
	}
	return slices.Values(space.Random(cluster.NewRand(s.seed), s.flows))
}

// size returns how many flows a space has.
func size(s cluster.Space) int {
	var pods, others [2]int
	for _, a := range s.Pods {
		pods[family(a)]++
	}
	for _, a := range s.Others {
		others[family(a)]++
	}
	pairs := 0
	for f := range pods {
		pairs += pods[f] * (pods[f] + 2*others[f])
	}
	return pairs * (1 + 3*len(s.Ports))
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// checkFresh compares running nodes with new ones that are told the same at once.
func (s *subject) checkFresh(ctx context.Context) error {
	fresh, err := s.fresh(ctx)
	if err != nil {
		return err
	}
	diff, err := s.running.Compare(ctx, fresh)
	if err == nil && diff != "" {
		err = errors.New(diff)
	}
	return errors.Join(err, fresh.Close())
}

// checkAgain tells everything once more, in every way.
func (s *subject) checkAgain(ctx context.Context) error {
	before := s.running.Operations()
	for what, again := range map[string]func() error{
		"as changes":    func() error { return s.running.Apply(ctx, model.Changes{Deltas: s.objects.All(s.seed)}) },
		"as a resync":   func() error { return s.resync(ctx) },
		"with a prompt": func() error { return s.running.Prompt(ctx) },
	} {
		if err := again(); err != nil {
			return err
		}
		if n := s.running.Operations() - before; n != 0 {
			return fmt.Errorf("the same state %s takes %d operations", what, n)
		}
	}
	return nil
}

func (s *subject) resync(ctx context.Context) error {
	return s.running.Apply(ctx, model.Changes{Resync: true, Deltas: s.objects.All(s.seed)})
}

// restart replaces the agent of a node over its stack while the state changes to the
// next one, and returns how many operations that takes in the stack.
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

// away tells changes to all nodes but one, whose new agent is told everything.
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
	return f.Node(name).Plugin.Apply(ctx, model.Changes{Resync: true, Deltas: s.objects.All(s.seed)})
}
