package differential

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// triesToConverge is how often a node is prompted after the last call that was made to
// fail. One attempt must do; another is for a connection that has to come up again.
const triesToConverge = 5

// deliver brings the state of a turn to all nodes.
func (m *Machine) deliver(ctx context.Context, t turn) error {
	before := m.fleet.Written()
	if err := m.grow(t); err != nil {
		return err
	}
	if t.Fate == Restarts || t.Fate == Replaced {
		if err := m.renew(t); err != nil {
			return err
		}
	}
	for _, name := range m.fleet.Names() {
		if err := m.tell(ctx, m.fleet.Node(name), t); err != nil {
			return err
		}
	}
	if t.Fate == Restarts && len(t.Fail) == 0 && len(t.Edits) == 0 {
		return m.fleet.Untouched(harness.Restart, before, "the restart of the agent of node "+t.Node)
	}
	return nil
}

// tell sends the state of a turn to one node.
func (m *Machine) tell(ctx context.Context, n *harness.Node, t turn) error {
	list := t.changes(n.Name)
	if n.Name == t.Node && len(t.Fail) > 0 {
		return m.fail(ctx, n, list, t)
	}
	for _, c := range list {
		if err := n.Plugin.Apply(ctx, c); err != nil {
			return harness.Violated(harness.Converges, "node %s does not enforce the event: %v", n.Name, err)
		}
	}
	return nil
}

// grow starts the nodes that are new in the state.
func (m *Machine) grow(t turn) error {
	for _, name := range harness.NamesOf(t.after.Nodes) {
		if m.fleet.Node(name) == nil {
			if err := m.fleet.Grow(name); err != nil {
				return err
			}
			t.isNew[name] = true
		}
	}
	return nil
}

// renew replaces the agent of the turn, with its dataplane or without. The new agent then receives
// everything.
func (m *Machine) renew(t turn) error {
	t.isNew[t.Node] = true
	m.Counts.Restarts++
	if t.Fate == Replaced {
		return m.fleet.Replace(t.Node)
	}
	return m.fleet.Restart(t.Node)
}

// changes returns the changes that a node receives.
func (t turn) changes(node string) []model.Changes {
	everything := t.objects.Changes(true, t.Seed)
	if t.isNew[node] {
		return []model.Changes{everything}
	}
	deltas := t.objects.Since(t.old, t.Seed)
	switch t.How {
	case AsResync:
		return []model.Changes{everything}
	case AsEverything:
		gone := slices.DeleteFunc(slices.Clone(deltas), func(d model.Delta) bool { return d.Value != nil })
		return []model.Changes{{Deltas: harness.Shuffled(append(gone, everything.Deltas...), t.Seed)}}
	case Twice:
		return []model.Changes{{Deltas: deltas}, {Deltas: slices.Clone(deltas)}}
	case OneByOne:
		var out []model.Changes
		for _, d := range deltas {
			out = append(out, model.Changes{Deltas: []model.Delta{d}})
		}
		return out
	case AsChanges, deliveries:
	}
	return []model.Changes{{Deltas: deltas}}
}

// fail lets calls of a node fail, one per attempt. While its dataplane is neither in the
// old nor in the new state, no flow may be judged as in neither. Then nothing fails
// any more, and it must converge.
func (m *Machine) fail(ctx context.Context, n *harness.Node, list []model.Changes, t turn) error {
	enforced := false
	for i, call := range t.Fail {
		n.Backend.FailNext(call)
		var err error
		if i == 0 {
			enforced, err = try(ctx, n, list)
		} else {
			enforced, err = n.TryAgain(ctx)
		}
		if err != nil {
			return harness.Violated(harness.Converges, "node %s, call %d of attempt %d failing: %v", n.Name, call, i+1, err)
		}
		if enforced {
			break // there was no such call
		}
		m.Counts.Failures++
		if err := m.checkBetween(t); err != nil {
			return err
		}
	}
	n.Backend.FailNext(0)
	return m.converge(ctx, n, t)
}

// try sends changes and does not wait for what failed.
func try(ctx context.Context, n *harness.Node, list []model.Changes) (enforced bool, err error) {
	for _, c := range list {
		if enforced, err = n.Try(ctx, c); err != nil {
			return false, err
		}
	}
	return enforced, nil
}

// converge lets a node finish what failed, after a restart if the event requires one. It is
// prompted even when nothing seems to have failed: the dataplane itself prompts as well, and the
// call that was to fail can have been one of that.
func (m *Machine) converge(ctx context.Context, n *harness.Node, t turn) error {
	if t.Fate == GivesUp {
		if err := m.renew(t); err != nil {
			return err
		}
		return n.Plugin.Apply(ctx, t.changes(n.Name)[0])
	}
	for range triesToConverge {
		if enforced, err := n.TryAgain(ctx); err != nil {
			return harness.Violated(harness.Converges, "node %s: %v", n.Name, err)
		} else if enforced {
			return nil
		}
	}
	return harness.Violated(harness.Converges, "node %s does not converge although no call fails: %+v", n.Name, n.Plugin.Status())
}
