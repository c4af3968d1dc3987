package alerts

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// always yields the same scrapes.
func always(all ...scrape) func(int) []scrape { return func(int) []scrape { return all } }

// program is a real one, which serves metrics.
type program struct {
	*programs.Process
	address string
}

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// start runs a program until the test ends, and waits until it serves metrics.
func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	socket := "SLUICE_API_SOCKET=" + filepath.Join(t.TempDir(), "agent.sock")
	p := programs.Start(t, func(cmd *exec.Cmd) error {
		cmd.Env = append(cmd.Env, socket)
		return cmd.Start()
	}, name, append(args, "--metrics-address", "127.0.0.1:0", "--log-level", "info")...)
	return &program{p, p.Line(`msg="metrics and health are served".* address=(\S+)`)[1]}
}

// scrape returns what the program serves; job is what podmonitor.yaml calls it.
func (p *program) scrape(job string) scrape {
	resp, err := http.Get("http://" + p.address + "/metrics")
	if err != nil {
		return scrape{job: job}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return scrape{job, string(b), err == nil && resp.StatusCode == http.StatusOK}
}

// until scrapes a program until what it serves has a line.
func (p *program) until(t *testing.T, job, line string) (s scrape) {
	t.Helper()
	programs.Eventually(t, func() error {
		if s = p.scrape(job); !strings.Contains(s.text, line) {
			return fmt.Errorf("there is no %q in\n%s", line, s.text)
		}
		return nil
	})
	return s
}

const agentJob, ksrJob, neutronJob = "sluice-agent-xdp", "sluice-ksr", "sluice-neutron"

// real are programs that are broken, and the alerts that fire then, all of them.
var real = map[string]struct {
	at    func(t *testing.T) func(int) []scrape
	fires []string
}{
	"nothing is wrong": {func(t *testing.T) func(int) []scrape {
		p := start(t, "sluice-agent", "dev", "--manifests", "../../../docs/examples/shop")
		return always(p.until(t, agentJob, "sluice_dataplane_up 1"))
	}, nil},
	"the agent is killed": {func(t *testing.T) func(int) []scrape {
		p := start(t, "sluice-agent", "dev", "--manifests", "../../../docs/examples/shop")
		alive := p.until(t, agentJob, "sluice_dataplane_up 1")
		p.Kill()
		dead := p.scrape(agentJob)
		return func(n int) []scrape {
			if n < 8 {
				return []scrape{alive}
			}
			return []scrape{dead}
		}
	}, []string{"SluiceAgentDown"}},
	"a policy is wrong": {func(t *testing.T) func(int) []scrape {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(wrongPolicy), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, "sluice-agent", "dev", "--manifests", dir)
		p.until(t, agentJob, "sluice_dataplane_up 1")
		return always(p.until(t, agentJob, "sluice_policies_partially_enforced 1"))
	}, []string{"SluicePoliciesPartiallyEnforced"}},
	"neither etcd nor VPP is there": {func(t *testing.T) func(int) []scrape {
		dir := t.TempDir()
		p := start(t, "sluice-agent", "run", "--node", "node-1", "--etcd-endpoints", "127.0.0.1:1", "--vpp-socket", filepath.Join(dir, "api.sock"),
			"--state-file", "", "--endpoints-file", "", "--cni-conf-dir", "", "--cni-results", "")
		return always(p.until(t, agentJob, "sluice_store_following 0"))
	}, []string{"SluiceDataplaneDown", "SluiceNoActiveReflector", "SluiceStoreNotFollowed", "SluiceStoreSilent"}},
	"there is no API server": {func(t *testing.T) func(int) []scrape {
		dir := t.TempDir()
		kubeconfig := filepath.Join(dir, "kubeconfig")
		if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, "sluice-ksr", "--kubeconfig", kubeconfig, "--etcd-endpoints", "127.0.0.1:1")
		return always(p.until(t, ksrJob, "sluice_ksr_leader 0"))
	}, []string{"SluiceReflectorsWithoutLeader"}},
	"sluice-neutron has no etcd": {func(t *testing.T) func(int) []scrape {
		p := start(t, "sluice-neutron", "--neutron-url", "http://127.0.0.1:1", "--etcd-endpoints", "127.0.0.1:1")
		return always(p.until(t, neutronJob, "sluice_neutron_leader 0"))
	}, []string{"SluiceNeutronWithoutLeader"}},
}

const wrongPolicy = `apiVersion: v1
kind: Namespace
metadata: {name: a}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: p}}
spec: {nodeName: node-1}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: wrong, namespace: a}
spec:
  podSelector: {}
  ingress:
    - from: [{ipBlock: {cidr: 10.0.0.0/33}}]
`

const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`

func TestAlertsOfBrokenPrograms(t *testing.T) {
	for name, c := range real {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := firing(t, c.at(t)); !slices.Equal(got, c.fires) {
				t.Errorf("%v fire, want %v", got, c.fires)
			}
		})
	}
}

// said are series of what takes long to break, and the alerts that fire then.
var said = []struct {
	job, series string // %d is the number of the scrape
	fires       []string
}{
	{agentJob, "sluice_vpp_sessions 81\nsluice_vpp_sessions_max 100", []string{"SluiceSessionTableFills"}},
	{agentJob, "sluice_vpp_sessions 80\nsluice_vpp_sessions_max 100", nil},
	{agentJob, "sluice_policy_memory_needed_bytes 9\nsluice_policy_memory_budget_bytes 10", []string{"SluicePolicyMemoryFills"}},
	{agentJob, "sluice_policy_memory_needed_bytes 9\nsluice_policy_memory_budget_bytes 0", nil},
	{agentJob, "sluice_store_complete 0", []string{"SluiceStoreNotComplete"}},
	{agentJob, "sluice_store_saved_state 1", []string{"SluiceSavedStateInForce"}},
	{agentJob, "sluice_store_silence_seconds 61", []string{"SluiceStoreSilent"}},
	{agentJob, "sluice_pods_waiting 1", []string{"SluicePodsWaiting"}},
	{agentJob, "sluice_endpoints{state=\"unknown\"} 1\nsluice_endpoints{state=\"pending\"} 0\nsluice_endpoints{state=\"conflicting\"} 0", []string{"SluiceEndpointsBlocked"}},
	{agentJob, "sluice_unenforced_interfaces 1", []string{"SluiceInterfacesNotEnforced"}},
	{agentJob, "sluice_endpoints{state=\"orphaned\"} 1\nsluice_endpoints{state=\"enforced\"} 1", nil},
	{agentJob, "# TYPE sluice_dataplane_drift_total counter\nsluice_dataplane_drift_total{renderer=\"acl\",kind=\"content\"} %d", []string{"SluiceDataplaneDrift"}},
	{ksrJob, "sluice_ksr_leader 1\nsluice_ksr_synced 0", []string{"SluiceReflectorNotSynced"}},
	{ksrJob, "sluice_ksr_leader 1\nsluice_ksr_synced 1\nsluice_ksr_pending 3", []string{"SluiceReflectorPending"}},
	{ksrJob, "sluice_ksr_leader 1\nsluice_ksr_synced 1\nsluice_ksr_nodes_without_agent 1", []string{"SluiceNodeWithoutAgent"}},
	{ksrJob, "sluice_ksr_leader 1\nsluice_ksr_synced 1\nsluice_ksr_nodes_without_agent 0", nil},
	{ksrJob, "sluice_ksr_leader 2\nsluice_ksr_synced 1", []string{"SluiceReflectorsWithoutLeader"}},
	{ksrJob, "# TYPE sluice_ksr_drift_total counter\nsluice_ksr_drift_total %d\nsluice_ksr_leader 1\nsluice_ksr_synced 1", []string{"SluiceReflectorDrift"}},
	{ksrJob, "", []string{"SluiceReflectorDown"}},
	{neutronJob, "sluice_neutron_leader 2", []string{"SluiceNeutronWithoutLeader"}},
	{neutronJob, "# TYPE sluice_neutron_call_seconds_count counter\nsluice_neutron_call_seconds_count{method=\"put\",result=\"error\"} %d\nsluice_neutron_leader 1", []string{"SluiceNeutronCallsFail"}},
	{neutronJob, "sluice_neutron_call_seconds_count{method=\"put\",result=\"error\"} 3\nsluice_neutron_leader 1", nil},
	{neutronJob, "", []string{"SluiceNeutronDown"}},
}

func TestAlertsOfSeries(t *testing.T) {
	for _, c := range said {
		got := firing(t, func(n int) []scrape {
			line := c.series
			if strings.Contains(line, "%d") {
				line = fmt.Sprintf(line, n)
			}
			return []scrape{{c.job, gauges(line), line != ""}}
		})
		if !slices.Equal(got, c.fires) {
			t.Errorf("%s: %v fire, want %v", c.series, got, c.fires)
		}
	}
}

// gauges says that series without a type are gauges.
func gauges(text string) string {
	var out strings.Builder
	typed := map[string]bool{}
	for line := range strings.Lines(text + "\n") {
		name := regexp.MustCompile(`^\w+`).FindString(line)
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			typed[f[2]] = true
		}
		if name != "" && !typed[name] {
			typed[name] = true
			out.WriteString("# TYPE " + name + " gauge\n")
		}
		out.WriteString(line)
	}
	return out.String()
}

func TestAlertsAreAllTried(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range real {
		for _, name := range c.fires {
			tried[name] = true
		}
	}
	for _, c := range said {
		for _, name := range c.fires {
			tried[name] = true
		}
	}
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			if !tried[r.Alert] {
				t.Errorf("nothing makes %s fire", r.Alert)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary, no description or no severity", r.Alert)
			}
		}
	}
}

// documented returns the metrics of the reference, which a test of the main module compares with
// the programs.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{"up": true}
	for _, m := range regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| (\\w+)").FindAllStringSubmatch(string(page), -1) {
		all[m[1]] = true
		if m[2] == "histogram" {
			all[m[1]+"_bucket"], all[m[1]+"_sum"], all[m[1]+"_count"] = true, true, true
		}
	}
	return all
}

// wantMetrics checks that an expression can be parsed, and names metrics that exist.
func wantMetrics(t *testing.T, where, expr string, known map[string]bool) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	found := false
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			found = true
			if !known[v.Name] {
				t.Errorf("%s: there is no metric %s", where, v.Name)
			}
		}
		return nil
	})
	if !found {
		t.Errorf("%s names no metric", where)
	}
}

func TestAlertsNameExistingMetrics(t *testing.T) {
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			wantMetrics(t, r.Alert, r.Expr, documented(t))
		}
	}
}

func TestDashboardNamesExistingMetrics(t *testing.T) {
	text, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids, known := map[int]bool{}, documented(t)
	for i, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			wantMetrics(t, p.Title, strings.ReplaceAll(target.Expr, "$node", ".*"), known)
		}
		for _, o := range board.Panels[:i] {
			if a, b := p.GridPos, o.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, o.Title)
			}
		}
	}
	if len(ids) < 20 {
		t.Errorf("the dashboard has %d panels", len(ids))
	}
}

// TestAlertsAreAllInGuides checks that the guides explain every alert.
func TestAlertsAreAllInGuides(t *testing.T) {
	var guides strings.Builder
	for _, name := range []string{"operations.md", "ksr.md", "neutron.md"} {
		b, err := os.ReadFile("../../../docs/guide/" + name)
		if err != nil {
			t.Fatal(err)
		}
		guides.Write(b)
	}
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			row := fmt.Sprintf("| `%s` | `%s` | ", r.Alert, r.Expr)
			row = strings.ReplaceAll(row, "unknown|pending|conflicting", `unknown\|pending\|conflicting`)
			if !strings.Contains(guides.String(), row) {
				t.Errorf("no guide has a row that begins with %s", row)
			}
		}
	}
}
