package explain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/renderer"
)

// Manifests is a cluster that exists only as manifests. The specification works on the objects
// themselves; the nodes receive what a store would hold of them.
type Manifests struct {
	Cluster
	// Beside returns the renderers that a node has beside the ACL renderer, new for
	// every node; nil for none.
	Beside func() []renderer.Renderer

	// DenyNode applies policies to traffic between a pod and its own node.
	DenyNode bool

	state   oracle.State
	objects []resource // in the order of the load, each ID once
	log     *slog.Logger
}

// resource is an object of a cluster in both of its forms.
type resource struct {
	id      model.ID
	message proto.Message
	object  any  // for the oracle; nil for objects without effect, and for services
	implied bool // a namespace that no manifest defines
}

// FromManifests returns the cluster that an API server would hold after the load: namespaces that
// no manifest defines exist, and rejected objects do not. The problems are those of the load and of
// the objects.
func FromManifests(load manifests.Load, log *slog.Logger) (Manifests, []api.Problem) {
	var all []resource
	problems := slices.Clone(load.Problems)
	implied := kinds.ImpliedNamespaces(load.Objects)
	for i, o := range slices.Concat(implied, load.Objects) {
		msg, found := convert.ToModel(o)
		problems = append(problems, found...)
		if msg == nil {
			problems = append(problems, api.Problem{Source: o.Source, Object: o.ID().String(), Reason: "is refused as a whole and has no effect"})
			continue
		}
		all = append(all, resource{o.ID(), msg, o.Object, i < len(implied)})
	}
	m := describe(all, log)
	for _, c := range load.Controllers {
		m.Controllers = append(m.Controllers, suggest.Selector{Namespace: c.Namespace, Labels: c.MatchLabels})
	}
	return m, problems
}

// FromCluster is a cluster of which the reflected state is at hand.
func FromCluster(c Cluster, log *slog.Logger) (Manifests, error) {
	var all []resource
	for _, msg := range c.messages() {
		id, err := model.IDOf(msg)
		if err != nil {
			return Manifests{}, err
		}
		all = append(all, resource{id: id, message: msg, object: objectOf(msg)})
	}
	return describe(all, log), nil
}

// describe makes the cluster of objects.
func describe(all []resource, log *slog.Logger) Manifests {
	m := Manifests{log: log, objects: all}
	for _, d := range all {
		m.Add(d.message)
		if d.object != nil {
			m.state.Add(d.object)
		}
	}
	for i, p := range m.Pods {
		m.Pods[i] = placed(p)
	}
	m.onNodes()
	return m
}

// With returns the cluster with the objects of another one in the place of those with their IDs,
// and without some. A namespace is removed with what lives in it. A namespace that the other one
// only implies stays as it is.
func (m Manifests) With(change Manifests, gone []model.ID) Manifests {
	deleted := map[model.ID]bool{}
	for _, id := range gone {
		deleted[id] = true
	}
	changed := map[model.ID]resource{}
	for _, d := range change.objects {
		changed[d.id] = d
	}
	var all []resource
	for _, d := range m.objects {
		if deleted[d.id] || deleted[model.ID{Kind: model.KindNamespace, Name: d.id.Namespace}] {
			continue
		}
		if c, ok := changed[d.id]; ok {
			if delete(changed, d.id); !c.implied {
				d = c
			}
		}
		all = append(all, d)
	}
	for _, d := range change.objects {
		if _, isNew := changed[d.id]; isNew {
			all = append(all, d)
		}
	}
	out := describe(all, m.log)
	out.Beside, out.DenyNode, out.Controllers = m.Beside, m.DenyNode, m.Controllers
	return out
}

func (m Manifests) oracle(s oracle.State) *oracle.Oracle {
	return oracle.New(s, oracle.AllowNodeTraffic(!m.DenyNode))
}

// IDs returns the objects of the cluster, without the namespaces that no manifest defines.
func (m Manifests) IDs() (out []model.ID) {
	for _, d := range m.objects {
		if !d.implied {
			out = append(out, d.id)
		}
	}
	return out
}

// State returns the Kubernetes objects that the oracle works on, each pod with all addresses of its
// node. The caller must not change them.
func (m Manifests) State() oracle.State { return m.state }

// onNodes gives the objects of pods all the addresses of their nodes.
func (m *Manifests) onNodes() {
	names := map[*corev1.Pod]string{}
	for i, p := range m.state.Pods {
		names[p] = m.Pods[i].GetNodeName()
	}
	m.state.Pods = OnNodes(m.state.Pods, func(p *corev1.Pod) (string, bool) { return names[p], true }, nil)
}

// placed puts a pod whose manifest names no node on one: that of its node's address,
// or else on one with all others. Neither can be the name of a node.
func placed(p *model.Pod) *model.Pod {
	if p.GetNodeName() != "" {
		return p
	}
	p = proto.CloneOf(p)
	p.NodeName = "(no name)"
	if ips := p.GetNodeIps(); len(ips) > 0 {
		p.NodeName = "(" + ips[0] + ")"
	}
	return p
}

// maxNodes bounds the nodes of one question: each of them runs.
const maxNodes = 24

// Explain answers a question by the specification, and by what the whole pipeline
// makes of the manifests on every node that one of the ends runs on.
func (m Manifests) Explain(ctx context.Context, question view.Question) (out []view.Explanation, err error) {
	questions, err := m.Questions(question)
	if err != nil {
		return nil, err
	}
	names := m.nodesOf(questions)
	if len(names) > maxNodes {
		return nil, fmt.Errorf("the question is about pods of %d nodes, and at most %d can be asked: name fewer pods", len(names), maxNodes)
	}
	spec := m.oracle(m.state)
	nodes := map[string]Node{}
	for _, name := range names {
		n, closing, startErr := m.start(ctx, name, spec)
		defer func() { err = errors.Join(err, closing()) }()
		if startErr != nil {
			return nil, fmt.Errorf("node %s: %w", name, startErr)
		}
		nodes[name] = n
	}
	for _, q := range questions {
		v := Specification{Oracle: spec, Selectors: m.Selectors()}.Explain(q)
		var asked []Node
		for _, name := range m.nodesOf([]Question{q}) {
			asked = append(asked, nodes[name])
		}
		out = append(out, Explanation(q, v, asked...))
	}
	return out, nil
}

// Matrix returns which pods can talk to which, on a node that has all pods.
func (m Manifests) Matrix(ctx context.Context, s matrix.Selection) (out view.Matrix, err error) {
	state := m.state
	state.Pods = OnNodes(state.Pods, func(*corev1.Pod) (string, bool) { return "", true }, map[string][]string{"": m.HostAddresses()})
	n, closing, err := m.start(ctx, "", m.oracle(state))
	defer func() { err = errors.Join(err, closing()) }()
	if err != nil {
		return out, err
	}
	n.Local = nil // all of them
	return n.Matrix(m.Cluster, s)
}

// nodesOf returns the nodes that the ends of flows are on, sorted: those of pods
// that policies see and that have an address.
func (m Manifests) nodesOf(questions []Question) []string {
	at := map[api.PodID]bool{}
	addrs := map[string]bool{}
	for _, q := range questions {
		for _, p := range []view.Party{q.Src, q.Dst} {
			at[p.Pod] = true
			if p.Pod == (api.PodID{}) && p.Address.IsValid() {
				addrs[p.Address.String()] = true // perhaps of several pods
			}
		}
	}
	names := map[string]bool{}
	for _, p := range m.Pods {
		asked := at[PodID(p)] || slices.ContainsFunc(p.GetIps(), func(ip string) bool { return addrs[ip] })
		if asked && IsLive(p) && len(p.GetIps()) > 0 {
			names[p.GetNodeName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// start runs a node, sends it the whole state, and returns when the node enforces it.
func (m Manifests) start(ctx context.Context, name string, spec *oracle.Oracle) (Node, func() error, error) {
	dataplane := &node.Vswitch{}
	cfg := node.Config{Name: name, AllowNode: !m.DenyNode, Log: m.log, Backends: []node.Backend{dataplane}}
	if m.Beside != nil {
		for _, r := range m.Beside() {
			cfg.Backends = append(cfg.Backends, node.Beside{To: r})
		}
	}
	n, err := node.New(cfg)
	if err != nil {
		return Node{}, func() error { return nil }, err
	}
	if err := n.Start(); err != nil {
		return Node{}, n.Close, err
	}
	deltas, err := m.Deltas()
	if err != nil {
		return Node{}, n.Close, err
	}
	if err := n.Apply(ctx, model.Changes{Resync: true, Deltas: deltas, Revision: 1}); err != nil {
		return Node{}, n.Close, err
	}
	s, err := n.Snapshot(ctx)
	if err != nil {
		return Node{}, n.Close, err
	}
	return Node{
		Name: name, Specification: Specification{Oracle: spec, Local: m.LocalTo(name)}, Renderers: n.Renderers(),
		Send: SendBy(dataplane), Meanings: MeaningsOf(s),
	}, n.Close, nil
}

// LocalTo returns the pods of a node.
func (c Cluster) LocalTo(name string) map[api.PodID]bool {
	local := map[api.PodID]bool{}
	for _, p := range c.Pods {
		if p.GetNodeName() == name {
			local[PodID(p)] = true
		}
	}
	return local
}

// Deltas returns what policy depends on, as a store holds it.
func (m Manifests) Deltas() ([]model.Delta, error) {
	var out []model.Delta
	for _, msg := range m.messages() {
		id, err := model.IDOf(msg)
		if err != nil {
			return nil, err
		}
		if !id.Kind.IsOfServices() {
			out = append(out, model.Delta{ID: id, Value: msg})
		}
	}
	return out, nil
}

// SendBy returns how packets are sent through a dataplane that can be probed.
func SendBy(dataplane interface{ Probe(f api.Flow) node.Walk }) func(api.Flow) (api.Action, string) {
	return func(f api.Flow) (api.Action, string) {
		w := dataplane.Probe(f)
		return w.Verdict, w.String()
	}
}
