package harness

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// State is the state that a cluster received, and what Check asks about it.
type State struct {
	*Expected
	Objects Objects    // that the nodes received
	Seed    uint64     // of the orders in which they are sent again
	Flows   []api.Flow // that are asked
	Except  []Invariant
	// All makes Check continue after a violation.
	All bool
}

// Expected is what must be true in a state, however it came about. It remembers what it found out,
// for the next check of the same state.
type Expected struct {
	Oracle *oracle.Oracle
	// Fresh is what a new cluster installs, by node; nil: Check finds out.
	Fresh   map[string]Installed
	allowed map[api.Flow]bool
}

// Expect returns what the specification requires in a state.
func (f *Cluster) Expect(s cluster.State) *Expected {
	o := oracle.New(s, oracle.AllowNodeTraffic(!f.options.DenyNode))
	return &Expected{Oracle: o, allowed: map[api.Flow]bool{}}
}

// Allowed reports whether the specification allows a flow.
func (e *Expected) Allowed(f api.Flow) bool {
	allowed, known := e.allowed[f]
	if !known {
		allowed = e.Oracle.Allowed(f)
		e.allowed[f] = allowed
	}
	return allowed
}

// Examined counts what was compared.
type Examined struct {
	Verdicts    int
	Denied      int // of the verdicts
	Established int // flows that were judged again
	Explained   int // flows whose reasons were compared
	Between     int // flows that were judged between two states
	Fresh       int // nodes that were compared with new ones
	Again       int // states that were sent again
}

// Add adds other counts.
func (e *Examined) Add(o Examined) {
	e.Verdicts += o.Verdicts
	e.Denied += o.Denied
	e.Established += o.Established
	e.Explained += o.Explained
	e.Between += o.Between
	e.Fresh += o.Fresh
	e.Again += o.Again
}

// Bounds of what one check asks.
const (
	conversations = 12 // flows that are kept from one check to the next
	explanations  = 40
)

// checks examine the invariants of a state, in this order: asking for verdicts ends sessions.
var checks = []struct {
	Invariant
	examine func(examination, context.Context) error
}{
	{Established, examination.established},
	{Verdict, examination.verdicts},
	{Reply, examination.conversations},
	{Desired, examination.desired},
	{Explained, examination.explained},
	{Contract, examination.contract},
	{Dangling, examination.dangling},
	{Fresh, examination.installed},
	{Again, examination.again},
}

// Check examines every invariant of a state. The error is a *Violation of the first that does not
// hold, or of all of them, joined.
func (f *Cluster) Check(ctx context.Context, s State) error {
	var errs []error
	x := examination{f, s}
	for _, c := range checks {
		if slices.Contains(s.Except, c.Invariant) {
			continue
		}
		if err := c.examine(x, ctx); err != nil {
			if errs = append(errs, err); !s.All {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// examination is one check.
type examination struct {
	*Cluster
	state State
}

// established sends the flows of the check before again, which have sessions.
func (x examination) established(_ context.Context) error {
	x.Examined.Established += len(x.talking)
	return x.converse(Established)
}

// verdicts asks about the first packets of flows.
func (x examination) verdicts(_ context.Context) error {
	x.Judge(x.state.Flows)
	for _, flow := range x.state.Flows {
		want := x.state.Allowed(flow)
		if x.Examined.Verdicts++; !want {
			x.Examined.Denied++
		}
		if x.Does(flow, want) != want {
			return x.wrong(Verdict, flow)
		}
	}
	return nil
}

// conversations has some of the flows leave sessions, for the next check to meet.
func (x examination) conversations(_ context.Context) error {
	x.talking = nil
	for _, flow := range x.state.Flows {
		if len(x.talking) < conversations && x.IsStateful() && x.Sees(flow) {
			x.talking = append(x.talking, flow)
		}
	}
	return x.converse(Verdict)
}

// converse sends packets that leave sessions behind. What answers an allowed flow must arrive,
// whatever the rules of the other direction say.
func (x examination) converse(i Invariant) error {
	for _, flow := range x.talking {
		allowed := x.state.Allowed(flow)
		if x.First(flow) != allowed {
			return x.wrong(i, flow)
		}
		if allowed && !x.Reply(flow) {
			return x.wrong(Reply, flow)
		}
	}
	return nil
}

func (x examination) wrong(i Invariant, flow api.Flow) error {
	return misjudged(i, flow, "%sthe specification:\n%s", x.Trace(flow), reason.Of(x.state.Oracle.Verdict(flow)))
}

// This invariant compares the desired state that renderers received with the specification.
func (x examination) desired(_ context.Context) error {
	for _, flow := range x.state.Flows {
		// A Recorder restricts its own pods only, so that all are asked.
		allowed := !slices.ContainsFunc(x.Names(), func(name string) bool { return x.nodes[name].Desired.Verdict(flow) == api.Deny })
		if allowed == x.state.Allowed(flow) {
			continue
		}
		var dump strings.Builder
		for _, name := range x.Names() {
			dump.WriteString("node " + name + ":\n" + x.nodes[name].Desired.Dump())
		}
		return misjudged(Desired, flow, "%s\nthe specification:\n%s", dump.String(), reason.Of(x.state.Oracle.Verdict(flow)))
	}
	return nil
}

// explained asks renderers what they do with flows and why. Where nodes have no exemption, one
// session rule may deny for two policies at once, and names both.
func (x examination) explained(_ context.Context) error {
	if !x.Explains() || x.options.DenyNode {
		return nil
	}
	stride := max(1, len(x.state.Flows)/explanations) | 1
	for i := int(x.state.Seed % uint64(stride)); i < len(x.state.Flows); i += stride {
		if err := x.state.Explained(x.Cluster, x.state.Flows[i]); err != nil {
			return err
		}
	}
	return nil
}

// contract reports violations of the renderer contract.
func (x examination) contract(context.Context) error {
	return x.none(Contract, func(n *Node) []string { return n.Desired.Violations() })
}

// dangling reports every reference to a missing object in what is installed. A set that no rule
// names is not reported: the contract permits it, for rules that others make superfluous. Fresh
// finds a set that a new node does not have.
func (x examination) dangling(context.Context) error {
	return x.none(Dangling, func(n *Node) []string { return n.Backend.Dangling() })
}

func (x examination) none(i Invariant, of func(*Node) []string) error {
	for _, name := range x.Names() {
		if found := of(x.nodes[name]); len(found) > 0 {
			return Violated(i, "node %s: %s", name, strings.Join(found, "; "))
		}
	}
	return nil
}

// installed compares every node with a new one that receives the same at once, in another order.
func (x examination) installed(ctx context.Context) error {
	if x.state.Fresh == nil {
		fresh, err := x.Anew(ctx, x.state.Objects, x.state.Seed+1)
		if err != nil {
			return Violated(Converges, "a new cluster: %v", err)
		}
		x.state.Fresh, err = fresh.Inspect(ctx)
		if err := errors.Join(err, fresh.Close()); err != nil {
			return Violated(Fresh, "a new cluster: %v", err)
		}
	}
	x.Examined.Fresh += len(x.nodes)
	got, err := x.Inspect(ctx)
	if err != nil {
		return Violated(Fresh, "%v", err)
	}
	if diff := differences(got, x.state.Fresh); diff != "" {
		return Violated(Fresh, "%s", diff)
	}
	return nil
}

// again sends the current state once more, in every way, and expects no change.
func (x examination) again(ctx context.Context) error {
	before := x.Operations()
	for _, again := range []struct {
		what string
		do   func() error
	}{
		{"as changes", func() error { return x.Apply(ctx, x.state.Objects.Changes(false, x.state.Seed+2)) }},
		{"as a resync", func() error { return x.Apply(ctx, x.state.Objects.Changes(true, x.state.Seed+3)) }},
		{"with a prompt", func() error { return x.Prompt(ctx) }},
	} {
		if err := again.do(); err != nil {
			return Violated(Converges, "the same state %s: %v", again.what, err)
		}
		x.Examined.Again++
		if n := x.Operations() - before; n != 0 {
			return Violated(Again, "the same state %s takes %d operations", again.what, n)
		}
	}
	return nil
}

// Explained compares what the renderers of a cluster say of one flow with the specification.
func (e *Expected) Explained(f *Cluster, flow api.Flow) error {
	if flow.Src == flow.Dst || !f.Explains() || !f.Sees(flow) {
		return nil // meets no table
	}
	f.Examined.Explained++
	v, decisions := e.Oracle.Verdict(flow), f.Explain(flow)
	if why := misexplained(v, decisions); why != "" {
		return misjudged(Explained, flow, "%s\n%v\nthe specification:\n%s", why, decisions, reason.Of(v))
	}
	return nil
}

// Untouched is the violation of an invariant when dataplanes did more than a number of operations.
func (f *Cluster) Untouched(i Invariant, since int, what string) error {
	if n := f.Written() - since; n != 0 {
		return Violated(i, "%s takes %d operations", what, n)
	}
	return nil
}

// Between asks about flows while nodes are between two states: what is permitted must be permitted
// by the one or by the other, and so for what is denied. Each end is judged by itself, because
// nodes, and tables, change one after the other. Flows of addresses that move, come or go are left
// out: they are attached to nothing, or to something else.
func (f *Cluster) Between(old, next *Expected, flows []api.Flow, moves map[netip.Addr]bool) error {
	for _, flow := range flows {
		if moves[flow.Src] || moves[flow.Dst] {
			continue
		}
		f.Examined.Between++
		a, b := old.Oracle.Verdict(flow), next.Oracle.Verdict(flow)
		permits := (a.Egress.Allowed || b.Egress.Allowed) && (a.Ingress.Allowed || b.Ingress.Allowed)
		denies := !a.Allowed || !b.Allowed
		if got := f.Does(flow, permits); got && !permits || !got && !denies {
			return misjudged(NeverFewer, flow, "is permitted: %t\n%sbefore:\n%s\nafter:\n%s", got, f.Trace(flow), reason.Of(a), reason.Of(b))
		}
	}
	return nil
}

// Anew starts a cluster of the same kind and names, which receives some objects at once.
func (f *Cluster) Anew(ctx context.Context, o Objects, seed uint64) (*Cluster, error) {
	out, err := New(f.kind, f.Names(), f.options)
	if err != nil {
		return nil, err
	}
	if err := out.Apply(ctx, o.Changes(true, seed)); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
