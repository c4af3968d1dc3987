package differential

import (
	"context"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
)

// check proves everything that must hold after an event.
func (m *Machine) check(ctx context.Context, t turn) error {
	o := m.oracle(t.after)
	flows := m.flows(t)
	if err := m.checkStacks(o, flows); err != nil {
		return err
	}
	if err := m.checkDangling(); err != nil {
		return err
	}
	if m.Counts.Events%max(1, m.options.Stride) == 0 && (m.options.only == "" || m.options.only == CheckFresh) {
		if err := m.checkFresh(ctx, t); err != nil {
			return err
		}
	}
	return m.checkAgain(ctx, t)
}

func (m *Machine) oracle(s cluster.State) *oracle.Oracle {
	return oracle.New(s, oracle.AllowNodeTraffic(!m.options.DenyNode))
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

// toldAllowed asks the nodes of both ends: a Recorder restricts its own pods only.
func (m *Machine) toldAllowed(f api.Flow) bool {
	for _, name := range m.fleet.Names() {
		if m.fleet.Node(name).Told.Verdict(f) == api.Deny {
			return false
		}
	}
	return true
}

// checkStacks sends the flows of the event before again, which have sessions, then asks
// about new ones, and then leaves sessions of some of them.
func (m *Machine) checkStacks(o *oracle.Oracle, flows []api.Flow) error {
	stateful := m.fleet.IsStateful()
	if stateful {
		m.Counts.Established += len(m.asked)
		if err := m.send(CheckEstablished, o, m.asked); err != nil {
			return err
		}
	}
	for _, f := range flows {
		want := o.Allowed(f)
		m.Counts.verdict(want)
		if m.fleet.Does(f, want) != want {
			return m.wrong(CheckVerdict, o, f)
		}
	}
	m.asked = flows[:min(len(flows), established)]
	if stateful {
		return m.send(CheckVerdict, o, m.asked)
	}
	return nil
}

// send sends packets that leave sessions behind. What answers an allowed flow must
// arrive, whatever the rules of the other direction say.
func (m *Machine) send(check Check, o *oracle.Oracle, flows []api.Flow) error {
	for _, f := range flows {
		allowed := o.Allowed(f)
		if m.fleet.First(f) != allowed {
			return m.wrong(check, o, f)
		}
		if allowed && !m.fleet.Reply(f) {
			return m.wrong(CheckReply, o, f)
		}
	}
	return nil
}

func (m *Machine) wrong(check Check, o *oracle.Oracle, f api.Flow) error {
	return misjudged(check, f, "%sthe specification:\n%s", m.fleet.Trace(f), reason.Of(o.Verdict(f)))
}

// checkBetween asks about flows while a node is between two states: what is permitted
// must be permitted by the one or by the other, and so for what is denied. Each end is
// judged by itself, because nodes, and tables, change one after the other. Flows of
// pods that come, go or move are left out: they are attached to nothing, or to
// something else, and so are all pods of a node that is new.
func (m *Machine) checkBetween(t turn) error {
	if t.Fate == Replaced {
		return nil
	}
	old, next := m.oracle(t.before), m.oracle(t.after)
	moves := cluster.Moves(t.before, t.after)
	for _, f := range m.flows(t) {
		if moves[f.Src] || moves[f.Dst] {
			continue
		}
		m.Counts.Between++
		a, b := old.Verdict(f), next.Verdict(f)
		permits := (a.Egress.Allowed || b.Egress.Allowed) && (a.Ingress.Allowed || b.Ingress.Allowed)
		denies := !a.Allowed || !b.Allowed
		got := m.fleet.Does(f, permits)
		if got && !permits || !got && !denies {
			return misjudged(CheckNeverFewer, f, "is %s\n%sbefore:\n%s\nafter:\n%s", verdictText(got), m.fleet.Trace(f), reason.Of(a), reason.Of(b))
		}
	}
	return nil
}

func verdictText(allowed bool) string {
	if allowed {
		return "permitted"
	}
	return "denied"
}

func (m *Machine) checkDangling() error {
	for _, name := range m.fleet.Names() {
		if d := m.fleet.Node(name).Dangling(); len(d) > 0 {
			return diverge(CheckDangling, "node %s: %s", name, strings.Join(d, "\n"))
		}
	}
	return nil
}

// checkFresh compares every node with a new one that is told the same in another order.
func (m *Machine) checkFresh(ctx context.Context, t turn) error {
	fresh, err := harness.New(m.options.Kind, m.fleet.Names(), harness.Options{DenyNode: m.options.DenyNode})
	if err != nil {
		return err
	}
	err = fresh.Apply(ctx, model.Changes{Resync: true, Deltas: t.objects.All(t.Seed + 1)})
	diff := ""
	if err == nil {
		m.Counts.Fresh += len(m.fleet.Names())
		diff, err = m.fleet.Compare(ctx, fresh)
	}
	if closed := fresh.Close(); err == nil {
		err = closed
	}
	if diff != "" {
		return diverge(CheckFresh, "%s", diff)
	}
	return err
}

// checkAgain applies what is applied, in every way, and expects nothing to happen.
func (m *Machine) checkAgain(ctx context.Context, t turn) error {
	before := m.fleet.Operations()
	everything := t.objects.All(t.Seed + 2)
	for _, again := range []struct {
		what string
		do   func() error
	}{
		{"as changes", func() error { return m.fleet.Apply(ctx, model.Changes{Deltas: everything}) }},
		{"as a resync", func() error { return m.fleet.Apply(ctx, model.Changes{Resync: true, Deltas: everything}) }},
		{"with a prompt", func() error { return m.fleet.Prompt(ctx) }},
	} {
		if err := again.do(); err != nil {
			return diverge(CheckConverges, "the same state %s: %v", again.what, err)
		}
		m.Counts.Again++
		if n := m.fleet.Operations() - before; n != 0 {
			return diverge(CheckAgain, "the same state %s takes %d operations", again.what, n)
		}
	}
	return nil
}
