package preview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer"
)

// Node is the cost of a change for a node.
type Node struct {
	Node       string      `json:"node"`
	Pods       int         `json:"pods"` // after the change
	Dataplanes []Dataplane `json:"dataplanes"`
}

// Dataplane is the cost of a change for one dataplane of a node.
type Dataplane struct {
	Renderer string `json:"renderer"`
	// Operations counts the changes of the dataplane: calls to VPP, writes to the policy map.
	Operations int   `json:"operations"`
	Before     Usage `json:"before"`
	After      Usage `json:"after"`
	// Budget is how many bytes rules may take; 0 where there is no limit.
	Budget uint64 `json:"budget,omitempty"`
	// Fits is false if the dataplane rejects rules; Error is the reason.
	Fits  bool   `json:"fits"`
	Error string `json:"error,omitempty"`
}

// Usage is how much of a dataplane's resources rules take.
type Usage struct {
	Tables  int    `json:"tables"`
	Rules   int    `json:"rules"`
	Entries int    `json:"entries"`
	Memory  uint64 `json:"memory"` // bytes, when a dataplane without rules gets all of them
}

// mostNodes is how many nodes are computed unless all are asked for: each has its own pipeline.
const mostNodes = 24

// check is a question to the dataplanes of the nodes of both ends.
type check struct {
	after bool
	flow  api.Flow
	want  bool
	nodes []string
}

// rehearsal takes the nodes through the change.
type rehearsal struct {
	before, change, after model.Changes
	denyNode              bool
	checks                []check
	options               Options
	names                 []string
}

// rehearse has every node enforce the state before, and then that after, in dataplanes of its own,
// and asks them about the flows of the results.
func (c *comparison) rehearse(ctx context.Context, results []result, o Options, r *Report) error {
	x := rehearsal{options: o, denyNode: c.is.DenyNode, checks: c.checks(results)}
	var err error
	if x.before, x.change, x.after, err = changes(c.was.Manifests, c.is.Manifests); err != nil {
		return err
	}
	pods := map[string]int{}
	for _, s := range []*state{c.was, c.is} {
		for _, p := range s.pods {
			pods[p.GetNodeName()] += 0
			if s == c.is {
				pods[p.GetNodeName()]++
			}
		}
	}
	x.names = slices.Sorted(maps.Keys(pods))
	if all := len(x.names); all > mostNodes && !o.AllNodes {
		slices.SortStableFunc(x.names, func(a, b string) int { return pods[b] - pods[a] })
		x.names = slices.Sorted(slices.Values(x.names[:mostNodes]))
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d nodes were computed, those with the most pods; --all-nodes computes all", mostNodes, all))
	}
	runs := make([]run, len(x.names)*len(o.Renderers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range runs {
		g.Go(func() (err error) {
			runs[i], err = x.run(ctx, x.names[i/len(o.Renderers)], o.Renderers[i%len(o.Renderers)])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, name := range x.names {
		n := Node{Node: name, Pods: pods[name]}
		for k := range o.Renderers {
			n.Dataplanes = append(n.Dataplanes, runs[i*len(o.Renderers)+k].dataplane)
		}
		r.Nodes = append(r.Nodes, n)
	}
	x.compare(runs, r)
	return nil
}

// checks are the questions to dataplanes, of all that changes and of a part of what does not.
func (c *comparison) checks(results []result) (out []check) {
	add := func(s *state, after bool, e ends, a atom, want bool) {
		if !e.exist() || len(s.PodsAt(e.src)) > 1 || len(s.PodsAt(e.dst)) > 1 {
			return // an address of several pods is that of one of them in a dataplane
		}
		k := check{after: after, flow: a.flow(e), want: want}
		for _, id := range append(s.PodsAt(e.src), s.PodsAt(e.dst)...) {
			if n := s.pods[id].GetNodeName(); !slices.Contains(k.nodes, n) {
				k.nodes = append(k.nodes, n)
			}
		}
		out = append(out, k)
	}
	for _, r := range results {
		probes := r.probes
		for _, f := range r.flows {
			probes = append(probes, f.probes...)
		}
		for _, p := range probes {
			add(c.was, false, p.was, p.atom, p.allowed)
			add(c.is, true, p.is, p.atom, p.allows)
		}
	}
	return out
}

// changes returns the states as resyncs, and what leads from the first to the second.
func changes(before, after explain.Manifests) (whole, change, end model.Changes, err error) {
	was, err := before.Deltas()
	is, err2 := after.Deltas()
	if err = errors.Join(err, err2); err != nil {
		return whole, change, end, err
	}
	old := map[model.ID]proto.Message{}
	for _, d := range was {
		old[d.ID] = d.Value
	}
	change.Revision = 2
	for _, d := range is {
		if v := old[d.ID]; v == nil || !proto.Equal(v, d.Value) {
			change.Deltas = append(change.Deltas, d)
		}
		delete(old, d.ID)
	}
	for _, d := range was {
		if old[d.ID] != nil {
			change.Deltas = append(change.Deltas, model.Delta{ID: d.ID})
		}
	}
	return model.Changes{Resync: true, Deltas: was, Revision: 1}, change, model.Changes{Resync: true, Deltas: is, Revision: 1}, nil
}

// run is the result of one dataplane of a node.
type run struct {
	node      string
	dataplane Dataplane
	broken    [2]bool      // before and after: it does not enforce the state
	permits   map[int]bool // by number of the check
}

// run takes one dataplane of a node through the change.
func (x *rehearsal) run(ctx context.Context, name, kind string) (out run, err error) {
	out = run{node: name, dataplane: Dataplane{Renderer: kind}, permits: map[int]bool{}}
	err = x.on(name, kind, func(n *node.Node, d dataplane) error {
		out.broken[0] = trouble(n, apply(ctx, n, x.before)) != ""
		out.dataplane.Before, _ = usage(n)
		x.ask(ctx, d, &out, false)
		operations := d.operations()
		out.dataplane.Error = trouble(n, apply(ctx, n, x.change))
		out.dataplane.Operations = d.operations() - operations
		out.dataplane.After, out.dataplane.Budget = usage(n)
		x.ask(ctx, d, &out, true)
		out.dataplane.Fits = out.dataplane.Error == ""
		out.broken[1] = !out.dataplane.Fits
		return ctx.Err()
	})
	if err != nil {
		return out, err
	}
	// What a dataplane keeps of the past, and needs while it changes, depends on the time.
	return out, x.on(name, kind, func(n *node.Node, _ dataplane) error {
		if apply(ctx, n, x.after) == nil {
			whole, _ := usage(n)
			out.dataplane.After.Memory = whole.Memory
		}
		return ctx.Err()
	})
}

// apply returns when a node enforces changes, or why it does not: what it would try again is an
// error here, since nothing gets better in a rehearsal.
func apply(ctx context.Context, n *node.Node, c model.Changes) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for tick := time.NewTicker(lookEvery); ctx.Err() == nil; <-tick.C {
			s := n.Plugin.Status()
			for _, r := range s.Renderers {
				if s.Seen >= c.Revision && r.Error != "" {
					cancel(errors.New(r.Error))
				}
			}
		}
	}()
	err := n.Apply(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// lookEvery is how often a renderer is asked whether it has failed.
const lookEvery = 10 * time.Millisecond

// on has a node with one dataplane do something.
func (x *rehearsal) on(name, kind string, do func(*node.Node, dataplane) error) (err error) {
	d, err := newDataplane(kind, x.options)
	if err != nil {
		return err
	}
	n, err := node.New(node.Config{Name: name, AllowNode: !x.denyNode, Log: slog.New(slog.DiscardHandler), Backends: []node.Backend{d}})
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.Start(); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return do(n, d)
}

// trouble returns why a node does not enforce its whole desired state, or "" if it does.
func trouble(n *node.Node, refused error) string {
	if refused != nil {
		return few(strings.Split(refused.Error(), "\n"), 1)
	}
	for _, r := range n.Renderers() {
		reporter, ok := renderer.As[renderer.Reporter](r)
		if !ok {
			continue
		}
		for _, u := range reporter.Unenforced() {
			if u.Class == api.ClassLimit {
				return fmt.Sprintf("%s: %s", api.OriginTexts([]api.Origin{u.Origin}), u.Reason)
			}
		}
	}
	return ""
}

func usage(n *node.Node) (u Usage, budget uint64) {
	for _, s := range n.States() {
		rules, entries := s.Entries()
		u = Usage{Tables: len(s.Tables), Rules: rules, Entries: entries, Memory: s.Memory.Needed}
		budget = s.Memory.Budget
	}
	return u, budget
}

// ask gets the dataplane's verdicts about the flows that its node decides, until the context ends.
func (x *rehearsal) ask(ctx context.Context, d dataplane, out *run, after bool) {
	for i, k := range x.checks {
		if ctx.Err() != nil {
			return
		}
		if k.after == after && slices.Contains(k.nodes, out.node) {
			out.permits[i] = d.Probe(k.flow).Verdict == api.Permit
		}
	}
}

// mostDisagreements limits how many are reported.
const mostDisagreements = 20

// compare compares what the dataplanes did with what the specification says. A node that does not
// enforce a state says nothing about it, and neither does one that was not computed.
func (x *rehearsal) compare(runs []run, r *Report) {
	more := 0
	for k, kind := range x.options.Renderers {
		byNode := map[string]run{}
		for i := range x.names {
			byNode[x.names[i]] = runs[i*len(x.options.Renderers)+k]
		}
		for i, c := range x.checks {
			got, known := c.answer(i, byNode)
			if !known {
				continue
			}
			if r.Checked++; got == c.want {
				continue
			}
			if len(r.Disagreements) == mostDisagreements {
				more++
				continue
			}
			r.Disagreements = append(r.Disagreements, c.disagreement(kind, got))
		}
	}
	if more > 0 {
		r.Disagreements = append(r.Disagreements, fmt.Sprintf("and %d more", more))
	}
}

// answer returns whether the nodes of both ends let a flow through.
func (c check) answer(i int, byNode map[string]run) (permits, known bool) {
	permits = true
	for _, name := range c.nodes {
		r, ok := byNode[name]
		if !ok || c.after && r.broken[1] || !c.after && r.broken[0] {
			return false, false
		}
		permits = permits && r.permits[i]
	}
	return permits, true
}

func (c check) disagreement(kind string, got bool) string {
	say := map[bool]string{true: "permits", false: "denies"}
	when := map[bool]string{true: "after", false: "before"}[c.after]
	return fmt.Sprintf("%s the change %s %s %s (nodes %s), and the specification %s it", when, kind, say[got], c.flow, strings.Join(c.nodes, ", "), say[c.want])
}
