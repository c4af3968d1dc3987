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
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/matrix"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/renderer"
)

// Manifests is a cluster that is only described. The specification works on the
// objects themselves; the nodes are told what a store would hold of them.
type Manifests struct {
	Cluster
	// Beside returns the renderers that a node has beside the ACL renderer, new for
	// every node; nil for none.
	Beside func() []renderer.Renderer

	state oracle.State
	log   *slog.Logger
}

// FromManifests reads what was loaded, as an API server would hold it: namespaces
// that nobody defines exist, and objects that are refused do not. The problems are
// those of the load and of the objects.
func FromManifests(load manifests.Load, log *slog.Logger) (Manifests, []api.Problem) {
	m := Manifests{log: log}
	problems := slices.Clone(load.Problems)
	for _, o := range slices.Concat(kinds.ImpliedNamespaces(load.Objects), load.Objects) {
		msg, found := convert.ToModel(o)
		problems = append(problems, found...)
		if msg == nil {
			problems = append(problems, api.Problem{Source: o.Source, Object: o.ID().String(), Reason: "is refused as a whole and has no effect"})
			continue
		}
		m.add(o.Object, msg)
	}
	m.onNodes()
	return m, problems
}

// add takes an object and its message.
func (m *Manifests) add(obj any, msg proto.Message) {
	switch msg := msg.(type) {
	case *model.Namespace:
		m.Namespaces, m.state.Namespaces = append(m.Namespaces, msg), append(m.state.Namespaces, obj.(*corev1.Namespace))
	case *model.Pod:
		m.Pods, m.state.Pods = append(m.Pods, placed(msg)), append(m.state.Pods, obj.(*corev1.Pod))
	case *model.NetworkPolicy:
		m.Policies, m.state.Policies = append(m.Policies, msg), append(m.state.Policies, obj.(*networkingv1.NetworkPolicy))
	case *model.Node:
		m.Nodes, m.state.Nodes = append(m.Nodes, msg), append(m.state.Nodes, obj.(*corev1.Node))
	case *model.ClusterPolicy:
		m.ClusterPolicies = append(m.ClusterPolicies, msg)
		m.addPolicy(obj)
	case *model.Service:
		m.Services = append(m.Services, msg)
	case *model.EndpointSlice:
		m.Slices = append(m.Slices, msg)
	}
}

// addPolicy takes a policy of administrators.
func (m *Manifests) addPolicy(obj any) {
	switch p := obj.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		m.state.AdminPolicies = append(m.state.AdminPolicies, p)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		m.state.BaselinePolicies = append(m.state.BaselinePolicies, p)
	case *v1alpha2.ClusterNetworkPolicy:
		m.state.ClusterPolicies = append(m.state.ClusterPolicies, p)
	}
}

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
	spec := oracle.New(m.state)
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
		v := Specification{Oracle: spec}.Explain(q)
		var asked []Node
		for _, name := range m.nodesOf([]Question{q}) {
			asked = append(asked, nodes[name])
		}
		out = append(out, Explanation(q, v, asked...))
	}
	return out, nil
}

// Matrix says who can talk to whom on a node that has all pods.
func (m Manifests) Matrix(ctx context.Context, s matrix.Selection) (out view.Matrix, err error) {
	state := m.state
	state.Pods = OnNodes(state.Pods, func(*corev1.Pod) (string, bool) { return "", true }, map[string][]string{"": m.HostAddresses()})
	n, closing, err := m.start(ctx, "", oracle.New(state))
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

// start runs a node that is told the whole state, and returns when it enforces it.
func (m Manifests) start(ctx context.Context, name string, spec *oracle.Oracle) (Node, func() error, error) {
	dataplane := &node.Vswitch{}
	cfg := node.Config{Name: name, AllowNode: true, Log: m.log, Backends: []node.Backend{dataplane}}
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
	deltas, err := m.deltas()
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

func (m Manifests) deltas() ([]model.Delta, error) {
	var out []model.Delta
	add := func(msg proto.Message) error {
		id, err := model.IDOf(msg)
		out = append(out, model.Delta{ID: id, Value: msg})
		return err
	}
	var errs []error
	for _, v := range m.Namespaces {
		errs = append(errs, add(v))
	}
	for _, v := range m.Pods {
		errs = append(errs, add(v))
	}
	for _, v := range m.Policies {
		errs = append(errs, add(v))
	}
	for _, v := range m.Nodes {
		errs = append(errs, add(v))
	}
	for _, v := range m.ClusterPolicies {
		errs = append(errs, add(v))
	}
	return out, errors.Join(errs...)
}

// SendBy returns how packets are sent through a dataplane that can be probed.
func SendBy(dataplane interface{ Probe(f api.Flow) node.Walk }) func(api.Flow) (api.Action, string) {
	return func(f api.Flow) (api.Action, string) {
		w := dataplane.Probe(f)
		return w.Verdict, w.String()
	}
}
