package debugapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/problems"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Node is what the API reads of a node. No method waits for an Apply.
type Node interface {
	Snapshot(ctx context.Context) (*policy.Snapshot, error)
	States() []*renderer.State
	Counters() []*renderer.State
	Decisions() map[string]map[renderer.CounterKey]uint64
}

// Lists serves the lists of objects.
type Lists struct {
	Name, Source string // of the node, and where state comes from
	Node         Node
	Problems     *problems.Known
	Store        func() view.StoreStatus
	// Blocked returns the interfaces that a renderer's dataplane blocks, if the backend and not
	// the renderer knows them.
	Blocked func(renderer string) (names []string, known bool)
}

func (l *Lists) pods(ctx context.Context, f Filter) ([]view.Pod, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	states, causes := l.Node.States(), l.Problems.ByObject()
	out := []view.Pod{}
	for _, p := range s.Pods {
		if !f.wants(p.ID.Namespace, p.ID.Name) || f.local && !p.Local {
			continue
		}
		v := podView(p)
		v.Problems = l.Problems.WithCauses(causes["Pod "+p.ID.String()], p.Problems)
		if v.State == podEnforced && slices.ContainsFunc(states, func(s *renderer.State) bool { return s.Waits(p.ID) }) {
			v.State = podUnplugged
		}
		out = append(out, v)
	}
	return out, nil
}

func podView(p policy.Pod) view.Pod {
	v := view.Pod{Pod: p.ID, Node: p.Node, Addresses: p.IPs, State: podState(p), Policies: p.Policies, InterfaceTag: acl.InterfaceTag(p.ID)}
	if isolates(p.Ingress) {
		v.Isolated = append(v.Isolated, api.Ingress)
	}
	if isolates(p.Egress) {
		v.Isolated = append(v.Isolated, api.Egress)
	}
	v.Labels = labelsOf(p.Labels)
	return v
}

// labelsOf returns nil for none.
func labelsOf(all policy.Labels) map[string]string {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]string, len(all))
	for _, l := range all {
		out[l.Key] = l.Value
	}
	return out
}

func (l *Lists) namespaces(ctx context.Context, f Filter) ([]view.Namespace, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := []view.Namespace{}
	for _, n := range s.Namespaces {
		if f.wants(n.Name, n.Name) {
			out = append(out, view.Namespace{Namespace: n.Name, Known: n.Known, Labels: labelsOf(n.Labels), Pods: n.Pods, Policies: n.Policies})
		}
	}
	return out, nil
}

// isolates reports whether a list is that of enforced policies. One of policies in audit mode alone
// audits, and denies nothing.
func isolates(l *renderer.RuleList) bool {
	audits := slices.ContainsFunc(l.Rules(), func(r api.ContivRule) bool { return r.Audit })
	denies := slices.ContainsFunc(l.Rules(), func(r api.ContivRule) bool { return r.Action == api.Deny })
	return l != nil && (denies || !audits)
}

// The states of local pods with an address.
const (
	podEnforced  = "enforced"
	podUnplugged = "no interface" // in the vswitch yet, so that nothing can be enforced
)

func podState(p policy.Pod) string {
	switch {
	case p.State != "live":
		return "ignored: " + p.State
	case !p.Local:
		return "remote"
	case !p.Enforced:
		return "pending"
	}
	return podEnforced
}

func (l *Lists) sets(ctx context.Context, f Filter) ([]view.Set, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out, meanings := []view.Set{}, explain.MeaningsOf(s)
	for _, set := range s.Sets {
		v := view.Set{ID: set.ID, Meaning: meanings.Text(set.Meaning), Members: set.Members}
		if strings.Contains(set.ID.String(), f.name) || strings.Contains(v.Meaning, f.name) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b view.Set) int { return cmp.Or(strings.Compare(a.Meaning, b.Meaning), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

func (l *Lists) tables(_ context.Context, f Filter) ([]view.Table, error) {
	out := []view.Table{}
	for _, s := range l.Node.States() {
		for _, t := range s.Tables {
			if !f.wantsTable(t) {
				continue
			}
			kind := "local"
			if t.IsGlobal() {
				kind = "global"
			}
			out = append(out, view.Table{
				Renderer: s.Renderer, Table: t.Name, Kind: kind, Pods: t.Pods, Rules: len(t.Rules), Entries: t.Entries, Objects: t.Objects,
			})
		}
	}
	return out, nil
}

// wantsTable reports whether a table passes: its name, or that of a pod that has it.
func (f Filter) wantsTable(t renderer.Table) bool {
	named := strings.Contains(t.Name, f.name) || slices.ContainsFunc(t.Pods, func(p api.PodID) bool { return strings.Contains(p.String(), f.name) })
	return named && (f.namespace == "" || inNamespace(t.Pods, f.namespace))
}

func inNamespace(pods []api.PodID, ns string) bool {
	return slices.ContainsFunc(pods, func(p api.PodID) bool { return p.Namespace == ns })
}

func (l *Lists) rules(ctx context.Context, f Filter) ([]view.Rule, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out, meanings := []view.Rule{}, explain.MeaningsOf(s)
	for _, s := range l.Node.Counters() {
		for _, t := range s.Tables {
			if f.wantsTable(t) {
				out = append(out, rulesOf(s.Renderer, t, meanings)...)
			}
		}
	}
	return out, nil
}

func rulesOf(renderer string, t renderer.Table, meanings explain.Meanings) (out []view.Rule) {
	for i, r := range t.Rules {
		v := view.Rule{Renderer: renderer, Table: t.Name, Index: i, Rule: r, Meaning: meanings.Rule(r), Pods: t.Pods}
		if i < len(t.Origins) {
			v.Origins = t.Origins[i]
		}
		if t.Packets != nil {
			v.Packets = &t.Packets[i]
			if with := t.CountedWith[i]; with >= 0 && with != i {
				v.Packets, v.CountedWith = nil, &t.CountedWith[i]
			}
		}
		out = append(out, v)
	}
	return out
}

// decisions returns how many packets the rules of policies decided.
func (l *Lists) decisions(_ context.Context, f Filter) ([]view.Decided, error) {
	all := l.Node.Decisions()
	if len(all) == 0 {
		var names []string
		for _, s := range l.Node.States() {
			names = append(names, s.Renderer)
		}
		return nil, fmt.Errorf("no dataplane of this agent counts packets by rule (renderers: %s; for VPP set --vpp-stats-socket)", strings.Join(names, ", "))
	}
	out := []view.Decided{}
	for name, counts := range all {
		for k, packets := range counts {
			if f.namespace == "" || k.Origin.Policy.Namespace == f.namespace {
				out = append(out, view.Decided{Renderer: name, Origin: k.Origin, Action: k.Action, Packets: packets})
			}
		}
	}
	slices.SortFunc(out, func(a, b view.Decided) int {
		return cmp.Or(strings.Compare(a.Renderer, b.Renderer), a.Origin.Compare(b.Origin), cmp.Compare(a.Action, b.Action))
	})
	return out, nil
}

func (l *Lists) status(ctx context.Context, _ Filter) (view.Status, error) { return l.Status(ctx) }

// Status returns the state of the agent.
func (l *Lists) Status(ctx context.Context) (view.Status, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return view.Status{}, err
	}
	v := view.Status{
		Version: version.Get().Version, Node: l.Name, Source: l.Source, Revision: s.Status.Revision, Seen: s.Status.Seen,
		Pods: len(s.Pods), Policies: len(s.Policies), Sets: len(s.Sets), Problems: l.Problems.All(s.Problems), Store: l.Store(),
	}
	v.Unenforced = unenforced(s.Policies, v.Problems)
	for _, p := range s.Pods {
		if p.Local {
			v.Local++
		}
		if p.Waiting {
			v.Waiting = append(v.Waiting, p.ID.String())
		}
	}
	states := l.Node.States()
	for _, r := range node.WithFindings(s.Status, states).Renderers {
		rv := view.RendererStatus{Name: r.Name, InSync: r.InSync, Applied: r.Applied, Error: r.Error, Since: r.Since, Refused: r.Refused, BusySince: r.BusySince}
		for _, state := range states {
			if state.Renderer == r.Name {
				describe(&rv, state)
			}
		}
		if names, known := l.Blocked(r.Name); known {
			rv.Blocked = names
		}
		v.Renderers = append(v.Renderers, rv)
	}
	return v, nil
}

// describe puts what a dataplane enforces into the status of its renderer.
func describe(rv *view.RendererStatus, state *renderer.State) {
	rv.Open, rv.Blocked = state.Forbidden, state.Blocked
	rules, entries := state.Entries()
	rv.Installed = view.Installed{Tables: len(state.Tables), Rules: rules, Entries: entries}
	if rv.Error == "" && !rv.InSync && state.Err != nil { // before the first state
		rv.Error = state.Err.Error()
	}
	for _, f := range state.Foreign {
		rv.Foreign = append(rv.Foreign, f.String())
	}
	if t := state.Sessions; t != nil {
		rv.SessionTable = view.SessionTable{Sessions: t.Used, SessionsMax: t.Max}
	}
	if err := state.Alive(time.Now()); err != nil {
		rv.Dataplane = err.Error()
	}
}
