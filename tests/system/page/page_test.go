package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/ui"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// playwright names the folder in which playwright-core is installed; shots the one that screenshots
// go to.
const (
	playwright = "SLUICE_PLAYWRIGHT"
	shots      = "SLUICE_SHOTS"
)

// browser returns the path of Chromium, or skips the test and says what is missing.
func browser(t *testing.T) string {
	t.Helper()
	if os.Getenv(playwright) == "" {
		t.Skip("the page is tested by make test-page: " + playwright + " is not set")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("the page is not tested: node is not installed (apt-get install nodejs npm)")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("the page is not tested: there is no Chromium (apt-get install chromium)")
	return ""
}

// TestPageInABrowser opens the page of the shop, of hostile names, of 1 000 pods of teams and of
// the generator, and of an agent that reports packets without end. The script says what is tested.
func TestPageInABrowser(t *testing.T) {
	path := browser(t)
	dir := os.Getenv(shots)
	if dir == "" {
		dir = t.TempDir()
	}
	change, err := os.ReadFile("../../../docs/examples/preview/cart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]string{
		"chromium": path, "shots": dir, "shop": shop(t), "change": string(change),
		"hostile":   serve(t, ui.Source{Name: hostile, State: of(names(hostile))}),
		"many":      serve(t, ui.Source{Name: "1 000 pods", State: of(many(t))}),
		"generated": serve(t, ui.Source{Name: "1 000 pods of the generator", State: of(described.Of(cluster.Random(1, cluster.Large(1000, 300))))}),
		"flood":     serve(t, ui.Source{Name: "flood", State: of(many(t)), Agent: flood{}}),
		"empty":     serve(t, ui.Source{Name: "nothing", State: of(explain.Manifests{})}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "page.mjs")
	cmd.Stdin = bytes.NewReader(config)
	out, err := cmd.CombinedOutput()
	t.Logf("screenshots are in %s\n%s", dir, out)
	if err != nil {
		t.Fatal(err)
	}
}

// shop runs sluicectl ui on the shop, and returns the address that it prints.
func shop(t *testing.T) string {
	t.Helper()
	var out, errOut programs.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := cli.NewCommand(nil, &out, &errOut)
	cmd.SetArgs([]string{"ui", "--manifests", "../../../docs/examples/shop"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	var address string
	programs.Eventually(t, func() error {
		for word := range strings.FieldsSeq(out.String()) {
			if strings.HasPrefix(word, "http://") {
				address = word
				return nil
			}
		}
		return fmt.Errorf("no address is printed: %s%s", out.String(), errOut.String())
	})
	return address
}

// serve serves a page, and returns its address.
func serve(t *testing.T, s ui.Source) string {
	t.Helper()
	srv := httptest.NewServer(ui.Handler(s, ui.Guard{}))
	t.Cleanup(srv.Close)
	return srv.URL + ui.Path
}

func of(m explain.Manifests) func(context.Context) (explain.Manifests, error) {
	return func(context.Context) (explain.Manifests, error) { return m, nil }
}

// hostile is what a writer of etcd may choose as a name.
var hostile = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>\x1b[2J\u202e\u2066evil\u0000\r\n" + strings.Repeat("long ", 200_000)

// names is a cluster of which every name is a text.
func names(text string) (m explain.Manifests) {
	for i := range 3 {
		ns := fmt.Sprint(i, text)
		m.Add(&model.Namespace{Name: ns})
		m.Add(&model.Pod{Namespace: ns, Name: text, NodeName: text, Ips: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Phase: model.Pod_PHASE_RUNNING,
			Labels: []*model.Label{{Key: "app", Value: text}, {Key: text, Value: text}}})
	}
	return m
}

// many is 1 000 pods and 300 policies: 25 teams that call each other.
func many(t *testing.T) explain.Manifests {
	t.Helper()
	var b strings.Builder
	for team := range 25 {
		ns := fmt.Sprintf("team-%02d", team)
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {team: t%d}}}\n", ns, team)
		n := 0
		for _, w := range []struct {
			app  string
			pods int
			port int
		}{{"web", 10, 8080}, {"api", 14, 8081}, {"worker", 8, 8082}, {"cache", 3, 6379}, {"db", 5, 5432}} {
			for p := range w.pods {
				n++
				fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s-%d, namespace: %s, labels: {app: %s}}, spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: main, containerPort: %d}]}]}, status: {phase: Running, podIP: 10.1.%d.%d, podIPs: [{ip: 10.1.%d.%d}]}}\n", w.app, p, ns, w.app, w.port, team, n, team, n)
			}
		}
		policy := func(name, spec string) {
			fmt.Fprintf(&b, "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: %s}, spec: {%s}}\n", name, ns, spec)
		}
		policy("default-deny", "podSelector: {}, policyTypes: [Ingress, Egress]")
		policy("egress", "podSelector: {}, egress: [{to: [{podSelector: {}}]}, {to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}], policyTypes: [Egress]")
		for to, from := range map[string]string{"api": "web", "db": "api", "cache": "api", "worker": "api"} {
			policy(to, fmt.Sprintf("podSelector: {matchLabels: {app: %s}}, ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}], ports: [{port: main}]}]", to, from))
		}
		for k := range 6 {
			policy(fmt.Sprintf("web-%d", k), fmt.Sprintf("podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: t%d}}, podSelector: {matchLabels: {app: api}}}], ports: [{port: main}]}]", (team+k*k+1)%25))
		}
	}
	m := described.Parse(t, b.String())
	if len(m.Pods) != 1000 || len(m.Policies) != 300 {
		t.Fatalf("%d pods, %d policies", len(m.Pods), len(m.Policies))
	}
	return m
}

// flood is an agent that reports packets without end, as fast as they are read.
type flood struct{}

func (flood) Pods(context.Context, string, string) ([]view.Pod, error)   { return nil, nil }
func (flood) Rules(context.Context, string, string) ([]view.Rule, error) { return nil, nil }
func (flood) Status(context.Context) (view.Status, error) {
	return view.Status{Pods: 1000, Renderers: []view.RendererStatus{{Name: "xdp", InSync: true}, {Name: "acl", Error: "VPP does not answer"}}}, nil
}
func (flood) Nodes(context.Context) ([]view.NodeEnforcement, error) {
	return []view.NodeEnforcement{{NodeStatus: view.NodeStatus{Node: "node-1", Revision: 7}, Enforced: view.EnforcedFully}, {NodeStatus: view.NodeStatus{Node: "node-2", Revision: 5}, Enforced: view.EnforcedPending, Why: "behind"}}, nil
}

// Watch implements ui.Agent.
func (flood) Watch(ctx context.Context, _ view.Watch, begun func(), send func(any) error) error {
	begun()
	pod := api.PodID{Namespace: "team-01", Name: "web-0"}
	for i := 0; ctx.Err() == nil; i++ {
		v := view.PacketVerdict{Time: time.Now(), Renderer: "xdp", Pod: pod, Action: api.Action(i % 2), Reason: "policy",
			Src: view.Party{Name: "team-02/api-1"}, Dst: view.Party{Name: pod.String(), Pod: pod},
			Flow: api.Flow{Src: netip.MustParseAddr("10.1.2.11"), Dst: netip.MustParseAddr("10.1.1.1"), Protocol: api.TCP, DstPort: uint16(i)}}
		if i%2 == 0 {
			v.Origins = []api.Origin{{Policy: api.PolicyID{Kind: api.NetworkPolicy, Namespace: "team-01", Name: "default-deny"}, Direction: api.Ingress, Rule: api.IsolationRule}}
		}
		if send(v) != nil {
			return nil
		}
		if i%100 == 99 {
			select { // 10 000 each second
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}
