package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cli/program"
	"github.com/sluice-net/sluice/internal/cli/reach"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// nodes are the agents of a cluster, by the name of their node; one without a socket is down.
type nodes map[string]string

// Agents implements fleet.
func (n nodes) Agents(context.Context) (all []reach.Agent, err error) {
	for _, node := range slices.Sorted(maps.Keys(n)) {
		all = append(all, reach.Agent{Node: node, Pod: "agent-of-" + node})
	}
	return all, nil
}

// Dial implements fleet.
func (n nodes) Dial(ctx context.Context, a reach.Agent) (net.Conn, error) {
	if n[a.Node] == "" {
		return nil, errors.New("its pod " + a.Pod + " does not run")
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", n[a.Node])
}

// ask runs a command against the agents of a cluster.
func (n nodes) ask(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	opts := &options{output: formatTable, in: strings.NewReader(""), out: &o}
	opts.once.Do(func() { opts.fleet = n })
	code = opts.run(program.Own, args, &e)
	return code, o.String(), e.String()
}

var (
	web = api.PodID{Namespace: "shop", Name: "web-0"}
	db  = api.PodID{Namespace: "data", Name: "db-0"}
)

// twoNodes is a cluster with a pod on each of two nodes, and node-3, which is down.
func twoNodes(t *testing.T) nodes {
	t.Helper()
	node := func(name string, local api.PodID) string {
		return agent(t, map[string]http.HandlerFunc{
			"GET /livez":    func(http.ResponseWriter, *http.Request) {},
			"GET /v1/nodes": says([]view.NodeEnforcement{{NodeStatus: view.NodeStatus{Node: "node-1", Time: time.Unix(1, 0)}}, {NodeStatus: view.NodeStatus{Node: "node-4"}}}),
			"GET /v1/pods": func(w http.ResponseWriter, r *http.Request) {
				pods := []view.Pod{}
				for pod, on := range map[api.PodID]string{web: "node-1", db: "node-2"} {
					p := view.Pod{Pod: pod, Node: on, State: "remote"}
					if pod == local {
						p.State = "enforced"
					}
					if strings.Contains(pod.Name, r.URL.Query().Get("name")) && (pod == local || !r.URL.Query().Has("local")) {
						pods = append(pods, p)
					}
				}
				slices.SortFunc(pods, func(a, b view.Pod) int { return strings.Compare(a.Node, b.Node) })
				says(pods)(w, r)
			},
			"GET /v1/policies":       says([]view.Policy{{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Pods: []api.PodID{local}, Enforced: view.EnforcedFully}}),
			"GET /v1/policies/rules": says([]struct{}{}),
			"GET /v1/status":         says(view.Status{Node: name, Version: "v1", Local: 1}),
			"GET /v1/check":          says([]view.Check{{Renderer: "xdp", Objects: 2}}),
			"GET /v1/decisions":      says([]view.Decided{{Renderer: "xdp", Action: api.Deny, Packets: 3}}),
			"POST /v1/explain": says([]view.Explanation{{
				Src: view.Party{Name: web.String(), Pod: web, Node: "node-1"}, Dst: view.Party{Name: db.String(), Pod: db, Node: "node-2"}, Allowed: true,
				Renderers: []view.Answer{{Renderer: "xdp", Node: name, Agrees: true, Allowed: true, Decides: []api.Direction{map[string]api.Direction{"node-1": api.Egress, "node-2": api.Ingress}[name]}}},
			}}),
			"POST /v1/verdicts": func(w http.ResponseWriter, r *http.Request) {
				says(view.PacketVerdict{Pod: local})(w, r)
			},
			"GET /v1/objects": says(view.Objects{Node: name}),
		})
	}
	return nodes{"node-1": node("node-1", web), "node-2": node("node-2", db), "node-3": ""}
}

func TestClusterAnswersByNode(t *testing.T) {
	n := twoNodes(t)
	const silent = "sluicectl: 1 node did not answer: node-3: its pod agent-of-node-3 does not run\n"
	for _, tc := range []struct {
		line   string
		code   int
		out    string
		errOut string
	}{
		{"get policies", ExitError, "NODE    POLICY    SELECTS  ISOLATES  RULES  LOCAL PODS  ENFORCED\nnode-1  shop/web           -         0      1           yes\nnode-2  shop/web           -         0      1           yes\n", silent},
		{"get policies --node node-2 --no-headers", ExitOK, "node-2  shop/web    -  0  1  yes\n", ""},
		{"get policies --node node-1,node-2 -o jsonpath={range[*]}{.node}{.policy.name}{end}", ExitOK, "node-1webnode-2web", ""},
		{"get pods -o jsonpath={range[*]}{.node}/{.state},{end}", ExitOK, "node-1/enforced,node-2/enforced,", ""},
		{"get pods --node node-2 -o name", ExitOK, "pod/data/db-0\n", ""},
		{"get pod data/db-0 -o jsonpath={range[*]}{.state}{end}", ExitOK, "enforced", ""},
		{"get status -o jsonpath={range[*]}{.node},{end}", ExitError, "node-1,node-2,", silent},
		{"get status --node node-1 -o jsonpath={.node}", ExitOK, "node-1", ""},
		{"check --node node-1,node-2", ExitOK, "node-1  renderer xdp  as installed, 2 objects read back\nnode-2  renderer xdp  as installed, 2 objects read back\n", ""},
		{"top rules -o jsonpath={range[*]}{.packets}{end}", ExitError, "6", silent},
		{"watch verdicts --follow=false -o jsonpath={.node} --node node-2", ExitOK, "node-2", ""},
		{"get policies --node node-7", ExitError, "", "sluicectl: --node node-7: no agent runs on that node; agents run on node-1,node-2,node-3\n"},
		{"get policies --node node-3", ExitError, "", "sluicectl: node-3: its pod agent-of-node-3 does not run\n"},
		{"bundle -", ExitError, "", "sluicectl: a bundle is about one node, and the cluster has 3 agents: name it with --node\n"},
	} {
		code, out, errOut := n.ask(strings.Fields(tc.line)...)
		if d := cmp.Diff([]any{tc.code, tc.out, tc.errOut}, []any{code, out, errOut}); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.line, d)
		}
	}
}

// TestClusterExplainsByBothEnds asks each node about the direction that it decides.
func TestClusterExplainsByBothEnds(t *testing.T) {
	n := twoNodes(t)
	code, out, errOut := n.ask("explain", web.String(), db.String()+":5432", "-o", "json")
	var all []view.Explanation
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != ExitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, errOut)
	}
	var said []string
	for _, a := range all[0].Renderers {
		said = append(said, fmt.Sprintf("%s%v", a.Node, a.Decides))
	}
	if d := cmp.Diff([]string{"node-1[egress]", "node-2[ingress]"}, said); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
	n["node-2"] = "" // the node of the destination goes down
	if code, _, errOut := n.ask("explain", web.String(), db.String()+":5432"); code != ExitError || !strings.Contains(errOut, "1 node did not answer: node-2: ") {
		t.Errorf("with the node of the destination down: exit code %d, %s", code, errOut)
	}
}

// TestClusterKeepsRowsOfSilentNode, when a list is followed: nothing of the node was deleted.
func TestClusterKeepsRowsOfSilentNode(t *testing.T) {
	n := twoNodes(t)
	var down atomic.Bool
	flaky := agent(t, map[string]http.HandlerFunc{
		"GET /v1/policies": func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				hangsUp(w, r)
			}
			says([]view.Policy{{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Enforced: view.EnforcedFully}})(w, r)
		},
	})
	n["node-3"] = flaky
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut programs.Buffer
	opts := &options{output: formatTable, in: strings.NewReader(""), out: &out}
	opts.once.Do(func() { opts.fleet = n })
	cmd := opts.command(program.Own, &errOut)
	cmd.SetArgs([]string{"get", "policies", "-w"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	until := func(what string, there func() bool) {
		programs.Eventually(t, func() error {
			if !there() {
				return errors.New("there never are " + what)
			}
			return nil
		})
	}
	until("rows of three nodes", func() bool { return strings.Count(out.String(), "shop/web") == 3 })
	down.Store(true)
	until("a remark about node-3", func() bool { return strings.Contains(errOut.String(), "1 node did not answer: ") })
	down.Store(false)
	until("all nodes", func() bool { return strings.Contains(errOut.String(), "all nodes answer again") })
	cancel()
	if err := <-done; err != nil || strings.Contains(out.String(), "deleted") {
		t.Errorf("it ended with %v, and printed\n%s", err, out.String())
	}
}

// TestWhomIsAsked lists what decides between the socket and the cluster.
func TestWhomIsAsked(t *testing.T) {
	kube := t.TempDir() + "/kubeconfig"
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
"contexts": [{"name": "a", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(kube, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := agent(t, nil)
	for _, tc := range []struct {
		name, socket, args, kubeconfig string
		cluster                        bool
		err                            string
	}{
		{program.Own, socket, "", kube, false, ""},                   // an agent runs here
		{program.Plugin, socket, "", kube, true, ""},                 // kubectl asks its cluster
		{program.Own, "/nowhere", "", kube, true, ""},                // no agent runs here
		{program.Own, "/nowhere", "", "/none", false, ""},            // and there is no cluster
		{program.Plugin, "/nowhere", "", "/none", false, ""},         // as above
		{program.Plugin, socket, "--socket /s", kube, false, ""},     // it is named
		{program.Own, socket, "--context a", kube, true, ""},         // as above
		{program.Own, socket, "--node node-1", kube, true, ""},       // as above
		{program.Own, socket, "--kubeconfig " + kube, "", true, ""},  // as above
		{program.Own, socket, "--agent-namespace n", kube, true, ""}, // as above
		{program.Own, socket, "--context b", kube, false, `--context "b": kubeconfig has no such context`},
		{program.Own, socket, "--context a --socket /s", kube, false, "--socket and --context exclude each other"},
		{program.Own, socket, "--kubeconfig /none", "", false, "kubeconfig: "},
	} {
		t.Setenv("KUBECONFIG", tc.kubeconfig)
		o := &options{output: formatTable}
		cmd := o.command(tc.name, &bytes.Buffer{})
		if err := cmd.PersistentFlags().Parse(strings.Fields(tc.args)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(tc.args, "--socket") {
			o.socket = tc.socket
		}
		f, err := o.open()
		if got := f != nil; got != tc.cluster || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s %s, socket %s, kubeconfig %s: cluster %v, error %v; want %v, %q", tc.name, tc.args, tc.socket, tc.kubeconfig, got, err, tc.cluster, tc.err)
		}
	}
}

// TestClusterNamesNodesWithoutAgent, of which others know that they had one.
func TestClusterNamesNodesWithoutAgent(t *testing.T) {
	n := twoNodes(t)
	delete(n, "node-3")
	delete(n, "node-1")
	code, out, errOut := n.ask("get", "policies", "--no-headers")
	if code != ExitError || !strings.HasPrefix(out, "node-2 ") || errOut != "sluicectl: 1 node did not answer: node-1: no agent runs there now\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestStaleAnswersAreSaid, once, beside the answer.
func TestStaleAnswersAreSaid(t *testing.T) {
	stale := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(view.StaleHeader, "etcd does not answer")
			says(v)(w, r)
		}
	}
	socket := agent(t, map[string]http.HandlerFunc{
		"GET /v1/pods":           says([]view.Pod{{Pod: web, State: "enforced"}}),
		"GET /v1/pods/relations": stale(view.PodRelations{}),
		"GET /v1/policies":       stale([]view.Policy{}),
		"GET /v1/endpoints":      says([]struct{}{}),
	})
	code, out, errOut := sluicectl(socket, "", "describe", "pod", web.String())
	if code != ExitOK || !strings.Contains(out, "Name:       web-0") || errOut != "note: the newest changes may be missing: etcd does not answer\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestClusterBelievesNodesAboutThemselves alone: the agent of node-2 answers as if it were node-1.
func TestClusterBelievesNodesAboutThemselves(t *testing.T) {
	n := twoNodes(t)
	delete(n, "node-3")
	n["node-2"] = agent(t, map[string]http.HandlerFunc{
		"GET /v1/status": says(view.Status{Node: "node-1"}),
		"GET /v1/pods":   says([]view.Pod{{Pod: web, Node: "node-1", State: "no interface"}, {Pod: db, Node: "node-2", State: "enforced"}}),
		"POST /v1/explain": says([]view.Explanation{{
			Src: view.Party{Name: web.String(), Pod: web, Node: "node-1"}, Dst: view.Party{Name: db.String(), Pod: db, Node: "node-2"}, Allowed: true,
			Renderers: []view.Answer{{Renderer: "xdp", Node: "node-1", Agrees: true, Decides: []api.Direction{api.Egress, api.Ingress}}},
		}}),
	})
	for line, want := range map[string]string{
		"get status -o jsonpath={range[*]}{.node},{end}":                                            "node-1,node-2,",
		"get pods -o jsonpath={range[*]}{.pod}={.state},{end}":                                      "shop/web-0=enforced,data/db-0=enforced,",
		"explain shop/web-0 data/db-0:1 -o jsonpath={range[0].renderers[*]}{.node}{.decides},{end}": `node-1["egress"],node-2["ingress"],`,
	} {
		if code, out, errOut := n.ask(strings.Fields(line)...); code != ExitOK || out != want {
			t.Errorf("%s: exit code %d, %q, want %q; %s", line, code, out, want, errOut)
		}
	}
}

// TestNodesThatAreLostAreSaidOnce, until they answer again: rounds of top -w, and streams.
func TestNodesThatAreLostAreSaidOnce(t *testing.T) {
	var errOut programs.Buffer
	w := &whom{errOut: &errOut}
	a, b := &client{node: "a"}, &client{node: "b"}
	round := func(silent ...*client) bool {
		for _, c := range silent {
			w.miss(c, errors.New("no"))
		}
		return w.sayMissed()
	}
	for i, r := range []struct {
		silent []*client
		others bool
	}{{nil, false}, {[]*client{a}, true}, {[]*client{a}, false}, {[]*client{a, b}, true}, {nil, true}, {nil, false}, {[]*client{a}, true}} {
		if got := round(r.silent...); got != r.others {
			t.Errorf("round %d: others answer: %t, want %t", i, got, r.others)
		}
	}
	if want := "without a: no\nwithout b: no\nwithout a: no\n"; errOut.String() != want {
		t.Errorf("it says %q, want %q", errOut.String(), want)
	}
	if err := w.missing(); err == nil || err.Error() != "1 node did not answer: a: no" {
		t.Errorf("at its end the command is without %v", err)
	}
	w = &whom{errOut: &errOut}
	w.lose(a, errors.New("no"))
	w.lose(b, errors.New("no"))
	w.find(a)
	if err := w.missing(); err == nil || err.Error() != "1 node did not answer: b: no" {
		t.Errorf("after a stream came back: %v", err)
	}
}

// TestStreamOfBrokenAgentEndsNoOther: one sends what is no verdict, the others are followed.
func TestStreamOfBrokenAgentEndsNoOther(t *testing.T) {
	n := twoNodes(t)
	n["node-3"] = agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": says("nonsense")})
	code, out, errOut := n.ask("watch", "verdicts", "--follow=false", "-o", "jsonpath={.node},")
	if code != ExitError || !strings.Contains(out, "node-1,") || !strings.Contains(out, "node-2,") || !strings.Contains(errOut, "without node-3: cannot parse the agent's verdict") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	delete(n, "node-1")
	delete(n, "node-2")
	n["node-4"] = ""
	if code, _, errOut := n.ask("suggest", "-n", "shop"); code != ExitError || !strings.Contains(errOut, "node") {
		t.Errorf("where no node answers: exit code %d, %q", code, errOut)
	}
}
