package preview

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/tests/lab/described"
)

const shop = "../../../docs/examples/shop"

// TestCompareFindsDisagreeingDataplane has the specification say something else about one flow
// of each dataplane.
func TestCompareFindsDisagreeingDataplane(t *testing.T) {
	before := described.Read(t, shop)
	after := before.With(described.Read(t, "../../../docs/examples/preview/cart.yaml"), nil)
	c, results, err := compare(context.Background(), before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var right, wrong Report
	o := Options{Renderers: Renderers}
	if err := c.rehearse(context.Background(), results, o, &right); err != nil || len(right.Disagreements) > 0 {
		t.Fatal(err, right.Disagreements)
	}
	at := slices.IndexFunc(results, func(r result) bool { return len(r.flows) > 0 })
	p := &results[at].flows[0].probes[0]
	p.allows = !p.allows
	if err := c.rehearse(context.Background(), results, o, &wrong); err != nil || len(wrong.Disagreements) != len(Renderers) || !strings.HasPrefix(wrong.Disagreements[0], "after the change acl ") {
		t.Errorf("%v, %q", err, wrong.Disagreements)
	}
}

// TestCompareIsSymmetric undoes a change: what opened closes.
func TestCompareIsSymmetric(t *testing.T) {
	before := described.Read(t, shop)
	after := before.With(described.Read(t, "../../../docs/examples/preview/cart.yaml"), nil)
	there, err := Compare(context.Background(), before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, err := Compare(context.Background(), after, before, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if there.count(Opened) == 0 || there.count(Opened) != back.count(Closed) || there.count(Closed) != back.count(Opened) {
		t.Errorf("there %+v\nback %+v", there.Differences, back.Differences)
	}
}

// TestCompareRefusesTooLargeInput has a bound on the pairs.
func TestCompareRefusesTooLargeInput(t *testing.T) {
	_, err := Compare(context.Background(), explain.Manifests{}, described.Read(t, shop), Options{Most: 10})
	if err == nil || !strings.HasPrefix(err.Error(), "the change is too large to compare: ") {
		t.Errorf("error %v", err)
	}
}

// pods makes pods in the namespace shop, each with labels of its own, and changes each.
func pods(n int, change func(i int, p *model.Pod)) (c explain.Cluster) {
	c.Namespaces = []*model.Namespace{{Name: "shop"}}
	for i := range n {
		p := &model.Pod{
			Namespace: "shop", Name: fmt.Sprint("p", i), NodeName: "n0", Phase: model.Pod_PHASE_RUNNING,
			Ips: []string{fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250)}, Labels: []*model.Label{{Key: "app", Value: fmt.Sprint(i)}},
		}
		change(i, p)
		c.Pods = append(c.Pods, p)
	}
	return c
}

func manifestsOf(t *testing.T, c explain.Cluster) explain.Manifests {
	t.Helper()
	m, err := explain.FromCluster(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCompareOfPodsAtOneAddressIsSmall has each pod know each policy once, however many pods share
// an address, and whatever the order in which they are looked at.
func TestCompareOfPodsAtOneAddressIsSmall(t *testing.T) {
	c := pods(16, func(i int, p *model.Pod) {
		if i > 1 {
			p.Ips = []string{"10.0.0.1"}
		}
	})
	c.Pods[1].Ips = []string{"10.0.0.2"}
	c.Pods[2].Ips = []string{"10.0.0.1", "fd00::2"}
	c.Pods[3].Ips = []string{"10.0.0.2", "fd00::2"}
	c.Policies = []*model.NetworkPolicy{{Namespace: "shop", Name: "all", PodSelector: &model.LabelSelector{}}}
	for i := range 4 {
		c.Policies = append(c.Policies, &model.NetworkPolicy{
			Namespace: "shop", Name: fmt.Sprint("own", i), PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: fmt.Sprint(i)}}},
		})
	}
	m := manifestsOf(t, c)
	for range 20 {
		v := newVocabulary()
		s := newState(m, v)
		s.describe(v)
		for i, want := range []int{3, 3, 4, 4, 3} { // what a pod has an address with
			p := s.pods[api.PodID{Namespace: "shop", Name: fmt.Sprint("p", i)}]
			if got := len(p.policies); got != want {
				t.Fatalf("p%d has %d policies, want %d", i, got, want)
			}
		}
	}
}

// TestCompareLooksAtNodesInLinearTime counts what is allocated for a class whose rules name nodes.
func TestCompareLooksAtNodesInLinearTime(t *testing.T) {
	const nodes = 400
	c := pods(1, func(int, *model.Pod) {})
	for i := range nodes {
		c.Nodes = append(c.Nodes, &model.Node{Name: fmt.Sprint("n", i), Addresses: []string{fmt.Sprintf("10.9.%d.%d", i/250, 1+i%250)}})
	}
	c.ClusterPolicies = []*model.ClusterPolicy{{
		Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Tier: model.ClusterPolicy_TIER_ADMIN, Name: "nodes", Subject: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}},
		Egress: []*model.ClusterPolicy_Rule{{
			Action: model.ClusterPolicy_ACTION_DENY, Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: &model.LabelSelector{}}}},
		}},
	}}
	v, m := newVocabulary(), manifestsOf(t, c)
	x := newComparison(newState(m, v), newState(m, v), v)
	if allocs := testing.AllocsPerRun(1, func() { x.outside(x.classes[0], api.Egress) }); allocs > 50*nodes {
		t.Errorf("%.0f allocations for %d nodes", allocs, nodes)
	}
}

// TestCompareRefusesManyGroupsAtOnce has a bound hold before pairs are made: 4096 groups would take
// gigabytes.
func TestCompareRefusesManyGroupsAtOnce(t *testing.T) {
	c := pods(4096, func(i int, p *model.Pod) {
		p.Labels = nil
		for bit := range 12 {
			p.Labels = append(p.Labels, &model.Label{Key: fmt.Sprint("bit", bit), Value: fmt.Sprint(i >> bit & 1)})
		}
	})
	for bit := range 12 {
		c.Policies = append(c.Policies, &model.NetworkPolicy{
			Namespace: "shop", Name: fmt.Sprint("b", bit), PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: fmt.Sprint("bit", bit), Value: "1"}}},
		})
	}
	after := manifestsOf(t, c)
	c.Policies = nil
	v := newVocabulary()
	x := newComparison(newState(manifestsOf(t, c), v), newState(after, v), v)
	var before, behind runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := x.run(t.Context(), 1000)
	runtime.ReadMemStats(&behind)
	if err == nil || !strings.HasPrefix(err.Error(), "the change is too large to compare: ") || behind.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("%v, after %d MiB", err, (behind.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// TestGroupingNamesManyPods names whole namespaces, and the pods of those that are not whole.
func TestGroupingNamesManyPods(t *testing.T) {
	const namespaces = 500
	g, pods := grouping{workloads: map[string][]api.PodID{}, namespace: map[string]int{}, pods: map[api.PodID]string{{Name: "other"}: "other"}}, map[api.PodID]bool{}
	for i := range 2 * namespaces {
		id := api.PodID{Namespace: fmt.Sprintf("ns%03d", i/2), Name: fmt.Sprint("p", i)}
		w := id.String()
		g.pods[id], g.workloads[w], pods[id] = w, []api.PodID{id}, true
		g.namespace[id.Namespace]++
	}
	g.namespace["ns001"]++ // has a pod that is not named
	names := g.meaning(pods)
	if len(names) != namespaces+1 || names[0] != "every pod in ns000" || names[1] != "ns001/p2" || names[2] != "ns001/p3" {
		t.Errorf("%d names, which begin with %q", len(names), names[:3])
	}
}

// TestRehearsalStopsAfterTimeout has no dataplane that could be asked.
func TestRehearsalStopsAfterTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x, out := rehearsal{checks: []check{{nodes: []string{"n"}}}}, run{node: "n", permits: map[int]bool{}}
	if x.ask(ctx, nil, &out, false); len(out.permits) > 0 {
		t.Errorf("there are answers: %v", out.permits)
	}
}

// TestMarkdownMakesNoLinks has names that GitHub would make links of.
func TestMarkdownMakesNoLinks(t *testing.T) {
	for text, want := range map[string]string{
		"https://evil.example/x": "https:\u200b//evil.example/x",
		"WWW.evil.example":       "WWW\u200b.evil.example",
		"#12":                    "\\#\u200b12",
		"10.0.0.0/8":             "10.0.0.0/8",
		"shop/www-1":             "shop/www-1",
	} {
		if got := string(markdown(text)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCompareReportsRulesThatDoNotFit gives the kernel less memory than the shop needs.
func TestCompareReportsRulesThatDoNotFit(t *testing.T) {
	r, err := Compare(context.Background(), explain.Manifests{}, described.Read(t, shop), Options{Renderers: Renderers, ACLMemory: 1 << 10, PolicyMemory: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Nodes[0].Dataplanes {
		if d.Fits || d.Error == "" {
			t.Errorf("%+v", d)
		}
	}
	if r.Fits() || len(r.Disagreements) > 0 {
		t.Errorf("%+v", r)
	}
}
