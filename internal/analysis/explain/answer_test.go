package explain

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// described returns a random cluster as manifests; what is wrong with them is wanted.
func described(s cluster.State) Manifests {
	var load manifests.Load
	for _, o := range cluster.Objects(s) {
		load.Objects = append(load.Objects, kinds.Object{Object: o.Object})
	}
	m, _ := FromManifests(load, slog.New(slog.DiscardHandler))
	return m
}

func asked(f api.Flow) view.Question {
	q := view.Question{Src: f.Src.String(), Dst: f.Dst.String(), Protocol: f.Protocol}
	if f.Protocol.HasPorts() {
		q.Port = fmt.Sprint(f.DstPort)
	}
	return q
}

// TestExplainOfRenderersNamesRightRules asks random clusters, and holds every rule that a
// renderer names against the manifests: it is there, its policy selects an end of the
// flow for that direction, and alone it does to the flow what its role says.
func TestExplainOfRenderersNamesRightRules(t *testing.T) {
	seen := map[view.OriginRole]int{}
	for seed := range uint64(60) {
		s := cluster.Random(seed, cluster.Small())
		m := described(s)
		nodes, closing := started(t, m)
		spec := Specification{Oracle: oracle.New(m.state)}
		for _, f := range cluster.FlowSpace(s).Random(cluster.NewRand(seed), 40) {
			questions, err := m.Questions(asked(f))
			if err != nil {
				t.Fatal(err)
			}
			e := Explanation(questions[0], spec.Explain(questions[0]), nodes...)
			if Disagrees(e) || e.RenderersDiffer {
				t.Fatalf("seed %d, %s: %+v %+v\n%s", seed, f, e.Renderers, e.Packets, e.Oracle)
			}
			for _, a := range e.Renderers {
				for _, n := range a.Origins {
					seen[n.Role]++
					if why := untrue(m.state, e, a, n); why != "" {
						t.Fatalf("seed %d, %s: %s is named as %q: %s\n%s", seed, f, n.Origin, n.Role, why, e.Oracle)
					}
				}
			}
		}
		closing()
	}
	if seen[view.OriginDecides] < 200 || seen[view.OriginMerged] == 0 || seen[view.OriginPasses] == 0 || seen[view.OriginUnknown] > 0 {
		t.Errorf("the roles were %v", seen)
	}
}

// started runs every node of a cluster.
func started(t *testing.T, m Manifests) (nodes []Node, closing func()) {
	t.Helper()
	names := map[string]bool{}
	var ends []func() error
	spec := oracle.New(m.state)
	for _, p := range m.Pods {
		if names[p.GetNodeName()] {
			continue
		}
		names[p.GetNodeName()] = true
		n, end, err := m.start(t.Context(), p.GetNodeName(), spec)
		if err != nil {
			t.Fatal(err)
		}
		nodes, ends = append(nodes, n), append(ends, end)
	}
	return nodes, func() {
		for _, end := range ends {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// enforcedForm returns an origin as it is where the policy is enforced.
func enforcedForm(o api.Origin) api.Origin {
	o.Audit = false
	return o
}

// untrue says what is wrong with what is said of an origin. It looks at the objects,
// and asks about a state with this one rule.
func untrue(s oracle.State, e view.Explanation, a view.Answer, n view.NamedOrigin) string {
	if n.Audit {
		if w := e.Oracle.Direction(n.Direction).Audit; w == nil || !slices.Contains(w.Deciding, n.Origin) && !slices.Contains(w.PassedBy(), enforcedForm(n.Origin)) {
			return fmt.Sprintf("it would not deny: %+v", w)
		}
		return ""
	}
	if n.Policy.Kind != api.NetworkPolicy {
		return untrueOfTier(s, e, n)
	}
	i := slices.IndexFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool {
		return np.Namespace == n.Policy.Namespace && np.Name == n.Policy.Name
	})
	if i < 0 {
		return "there is no such policy"
	}
	np := s.Policies[i].DeepCopy()
	np.Annotations = nil // it is asked about as if it was enforced
	subject := e.Dst
	if n.Direction == api.Egress {
		subject = e.Src
	}
	if !selects(s, np, subject.Pod) {
		return "the policy does not select " + subject.Name
	}
	if n.Rule == api.IsolationRule && a.Allowed {
		return "an isolation permits"
	}
	only := oracle.State{Nodes: s.Nodes, Namespaces: s.Namespaces, Pods: s.Pods}
	only.Policies = []*networkingv1.NetworkPolicy{alone(np, n.Origin)}
	v := oracle.New(only).VerdictPods(e.Oracle.Src, e.Oracle.Dst, e.Flow.Protocol, e.Flow.DstPort).Direction(n.Direction)
	switch {
	case !v.Isolated:
		return "the policy does not isolate " + n.Direction.String()
	case n.Rule == api.NodeRule:
		return ""
	case n.Rule == api.IsolationRule && v.Allowed:
		return "without rules the policy allows the flow"
	case n.Rule >= 0 && v.Allowed != (n.Role != view.OriginMerged):
		return fmt.Sprintf("the rule alone allows the flow: %t", v.Allowed)
	}
	return ""
}

func selects(s oracle.State, np *networkingv1.NetworkPolicy, id api.PodID) bool {
	sel, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
	for _, p := range s.Pods {
		if p.Namespace == id.Namespace && p.Name == id.Name {
			return err == nil && p.Namespace == np.Namespace && sel.Matches(labels.Set(p.Labels))
		}
	}
	return false
}

// alone leaves one rule of a policy, or none, and its types.
func alone(np *networkingv1.NetworkPolicy, g api.Origin) *networkingv1.NetworkPolicy {
	ingress, egress := np.Spec.Ingress, np.Spec.Egress
	if np.Spec.PolicyTypes == nil {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	np.Spec.Ingress, np.Spec.Egress = nil, nil
	switch {
	case g.Rule < 0:
	case g.Direction == api.Ingress:
		np.Spec.Ingress = ingress[g.Rule : g.Rule+1]
	default:
		np.Spec.Egress = egress[g.Rule : g.Rule+1]
	}
	return np
}

// liar answers the contrary of a renderer.
type liar struct{ renderer.Renderer }

func (liar) Name() string { return "liar" }

func (l liar) Explain(f api.Flow) []renderer.Decision {
	out := slices.Clone(l.Renderer.(renderer.Explainer).Explain(f))
	d := renderer.Decision{Table: "made up", Action: api.Deny, Origins: []api.Origin{{Policy: api.PolicyID{Namespace: "demo", Name: "none"}}}}
	if permits(out) {
		return append(out, d)
	}
	return nil
}

// silent does not explain itself.
type silent struct{ renderer.Renderer }

func (silent) Name() string { return "silent" }

func TestExplainAsksEveryRendererOfNode(t *testing.T) {
	m := manifestsOf(t, demo)
	recorder := renderertest.NewRecorder("recorder", t)
	sw := &node.Vswitch{}
	n, err := node.New(node.Config{Name: "node-1", AllowNode: true, Log: slog.New(slog.DiscardHandler), Backends: []node.Backend{sw, node.Beside{To: recorder}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	deltas, err := m.Deltas()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Apply(t.Context(), model.Changes{Resync: true, Deltas: deltas, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	here := Node{Name: "node-1", Specification: Specification{Oracle: oracle.New(m.state), Local: m.LocalTo("node-1")}, Renderers: n.Renderers(), Send: SendBy(sw)}

	for src, allowed := range map[string]bool{"demo/friend": true, "demo/stranger": false} {
		e := explained(t, m, here, src, "demo/server")
		if d := cmp.Diff([]string{fmt.Sprint("acl ", allowed, true), fmt.Sprint("recorder ", allowed, true)}, said(e)); d != "" || e.RenderersDiffer || Disagrees(e) {
			t.Errorf("%s (-want +got):\n%s", src, d)
		}
		for _, a := range e.Renderers {
			if len(a.Origins) != 1 || a.Origins[0].Role != view.OriginDecides || len(a.Unnamed) > 0 {
				t.Errorf("%s: %s names %+v and not %v", src, a.Renderer, a.Origins, a.Unnamed)
			}
		}
		lying := here
		lying.Renderers = append(lying.Renderers, liar{recorder}, silent{sw.ACL})
		e = explained(t, m, lying, src, "demo/server")
		want := []string{fmt.Sprint("acl ", allowed, true), fmt.Sprint("recorder ", allowed, true), fmt.Sprint("liar ", !allowed, false), fmt.Sprint("silent ", allowed, true) + " it does not explain itself"}
		if d := cmp.Diff(want, said(e)); d != "" || !e.RenderersDiffer || !Disagrees(e) {
			t.Errorf("%s: with one that lies, differ=%t (-want +got):\n%s", src, e.RenderersDiffer, d)
		}
		if a := e.Renderers[2]; allowed && (len(a.Origins) != 1 || a.Origins[0].Role != view.OriginUnknown) {
			t.Errorf("what does not exist is named as %+v", a.Origins)
		}
	}
}

func explained(t *testing.T, m Manifests, n Node, src, dst string) view.Explanation {
	t.Helper()
	questions, err := m.Questions(view.Question{Src: src, Dst: dst, Port: "80", Protocol: api.TCP})
	if err != nil {
		t.Fatal(err)
	}
	return Explanation(questions[0], n.Explain(questions[0]), n)
}

// said sums up answers.
func said(e view.Explanation) (out []string) {
	for _, a := range e.Renderers {
		out = append(out, strings.TrimSpace(fmt.Sprint(a.Renderer, " ", a.Allowed, a.Agrees, " ", a.Unasked)))
	}
	return out
}

func TestExplainNamesAllRulesThatOneReplaces(t *testing.T) {
	m := manifestsOf(t, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: more, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - {from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 81}]}
  - {from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 80, endPort: 90}]}
`)
	all, err := m.Explain(t.Context(), view.Question{Src: "demo/friend", Dst: "demo/server", Port: "80", Protocol: api.TCP})
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]view.OriginRole{}
	for _, n := range all[0].Renderers[0].Origins {
		roles[fmt.Sprint(n.Policy.Name, n.Rule)] = n.Role
	}
	if d := cmp.Diff(map[string]view.OriginRole{"server0": view.OriginDecides, "more1": view.OriginDecides, "more0": view.OriginMerged}, roles); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestManifestsAreExplainedAsEnforced asks random clusters, odd ones too, and
// wants the pipeline to say what the specification says.
func TestManifestsAreExplainedAsEnforced(t *testing.T) {
	cfg := cluster.SmallWithSharedAddresses()
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cfg).Draw(t, "state")
		m := described(s)
		for _, f := range cluster.FlowSpace(s).Random(cluster.NewRand(rapid.Uint64().Draw(t, "flows")), 2) {
			all, err := m.Explain(t.Context(), asked(f))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				if Disagrees(e) {
					t.Fatalf("%s: %+v %+v\n%s", f, e.Renderers, e.Packets, e.Oracle)
				}
			}
		}
	})
}

func TestOnNodesRefusesTooManyNodes(t *testing.T) {
	var load manifests.Load
	for i := range maxNodes + 1 {
		objects, problems := manifests.Decode(strings.NewReader(fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: demo, labels: {app: x}}, spec: {nodeName: n%d}, status: {phase: Running, podIPs: [{ip: 10.0.0.%d}]}}", i, i, i+1)), "")
		if problems != nil {
			t.Fatal(problems)
		}
		load.Objects = append(load.Objects, objects...)
	}
	m, _ := FromManifests(load, slog.New(slog.DiscardHandler))
	_, err := m.Explain(t.Context(), view.Question{Src: "198.51.100.7", Dst: "app=x", Port: "80", Protocol: api.TCP})
	if err == nil || !strings.Contains(err.Error(), "pods of 25 nodes, and at most 24") {
		t.Errorf("the error is %v", err)
	}
}
