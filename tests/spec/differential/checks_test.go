package differential

import (
	"context"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// check proves everything that must hold after an event.
func (m *Machine) check(ctx context.Context, t turn) error {
	s := harness.State{Expected: m.fleet.Expect(t.after), Objects: t.objects, Seed: t.Seed, Flows: m.flows(t)}
	if m.Counts.Events%max(1, m.options.Stride) != 0 || m.options.only != "" && m.options.only != harness.Fresh {
		s.Except = []harness.Invariant{harness.Fresh}
	}
	err := m.fleet.Check(ctx, s)
	m.Counts.Examined = m.fleet.Examined
	return err
}

// flows draws flows, most of them about what the event touched.
func (m *Machine) flows(t turn) []api.Flow {
	focus := cluster.Focus(t.before, t.after, t.Edits)
	flows := cluster.FlowSpace(t.after).Near(cluster.NewRand(t.Seed), m.options.Flows, focus)
	if m.options.ask.Src.IsValid() {
		flows = append([]api.Flow{m.options.ask}, flows...)
	}
	return flows
}

// checkBetween asks about flows while a node is between two states. All pods of a node that is new
// are attached to something else.
func (m *Machine) checkBetween(t turn) error {
	if t.Fate == Replaced {
		return nil
	}
	return m.fleet.Between(m.fleet.Expect(t.before), m.fleet.Expect(t.after), m.flows(t), cluster.Moves(t.before, t.after))
}
