package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestMain(m *testing.M) {
	if line := os.Getenv(runVariable); line != "" {
		os.Exit(Run(strings.Fields(line), os.Stdin, os.Stdout, os.Stderr))
	}
	etcd.Main()
	code := m.Run()
	if err := endAgents(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// agent answers like an agent, on a socket, with what a test gives it.
func agent(t *testing.T, routes map[string]http.HandlerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(programs.SocketDir(t), "s")
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.HandleFunc(pattern, h)
	}
	srv := httptest.NewUnstartedServer(mux)
	if err := srv.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv.Listener = listener
	srv.Start()
	t.Cleanup(srv.Close)
	return socket
}

// says answers with a value as JSON.
func says(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(v) // a client that is gone fails the test itself
	}
}

// fails answers with an error.
func fails(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) }
}

// sluicectl runs a command on an agent.
func sluicectl(socket, stdin string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Run(append(args, "--socket", socket), strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

func TestFormatsPrintSameValue(t *testing.T) {
	pods := []view.Pod{{Pod: api.PodID{Namespace: "shop", Name: "web-0"}, State: "enforced", Labels: map[string]string{"b": "2", "a": "<1>"}}}
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/pods": says(pods)})

	_, table, _ := sluicectl(socket, "", "get", "pods")
	want := "POD         NODE  ADDRESSES  STATE     ISOLATED  POLICIES  LABELS\nshop/web-0                   enforced  -         -         a=<1>,b=2\n"
	if d := cmp.Diff(want, table); d != "" {
		t.Errorf("table (-want +got):\n%s", d)
	}
	_, text, _ := sluicectl(socket, "", "get", "pods", "-o", "json")
	var fromJSON, fromYAML []view.Pod
	if err := json.Unmarshal([]byte(text), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "<1>") {
		t.Errorf("JSON is escaped for a page:\n%s", text)
	}
	_, text, _ = sluicectl(socket, "", "get", "pods", "-o", "yaml")
	if err := yaml.Unmarshal([]byte(text), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pods, fromJSON) + cmp.Diff(pods, fromYAML); d != "" {
		t.Error(d)
	}
}

func TestListingRequestsOnlyNamedObjects(t *testing.T) {
	var asked []string
	note := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		says([]view.Set{})(w, r)
	}
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/{what}": note})
	for _, args := range [][]string{{"sets"}, {"policies", "--contains", "web"}, {"tables", "-n", "shop"}, {"rules", "--contains", "a&b", "-n", "s p"}} {
		if code, out, errOut := sluicectl(socket, "", append([]string{"get"}, args...)...); code != ExitOK || out != "no "+args[0]+"\n" {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
	want := []string{"/v1/sets?", "/v1/policies?name=web", "/v1/tables?namespace=shop", "/v1/rules?name=a%26b&namespace=s+p"}
	if d := cmp.Diff(want, asked); d != "" {
		t.Error(d)
	}
}

func TestExitCodesAreThoseOfAnswer(t *testing.T) {
	explanation := func(allowed bool) http.HandlerFunc {
		return says([]view.Explanation{{Allowed: true}, {Allowed: allowed}})
	}
	injection := func(v api.Action) http.HandlerFunc {
		return says([]view.Injection{{Verdict: v, Expected: v}})
	}
	for name, tc := range map[string]struct {
		command string
		answer  http.HandlerFunc
		want    int
	}{
		"all allowed":    {"explain", explanation(true), ExitOK},
		"one denied":     {"explain", explanation(false), ExitDenied},
		"permitted":      {"inject", injection(api.Permit), ExitOK},
		"dropped":        {"inject", injection(api.Deny), ExitDenied},
		"no such pod":    {"explain", fails(http.StatusUnprocessableEntity, "pod a/b is not known"), ExitError},
		"not understood": {"inject", says("what?"), ExitError},
		"cut off": {"inject", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(200)
		}, ExitError},
		"another programme": {"explain", fails(http.StatusNotFound, "404 page not found"), ExitError},
	} {
		socket := agent(t, map[string]http.HandlerFunc{"POST /v1/" + tc.command: tc.answer})
		for _, format := range []string{"table", "json", "yaml"} {
			code, out, errOut := sluicectl(socket, "", tc.command, "a/b", "c/d:80", "-o", format)
			if code != tc.want {
				t.Errorf("%s, %s: exit code %d, want %d; %s%s", name, format, code, tc.want, out, errOut)
			}
			if (code == ExitError) != strings.HasPrefix(errOut, "sluicectl: ") || (code == ExitError) == (out != "") {
				t.Errorf("%s, %s: exit code %d with output %q and error %q", name, format, code, out, errOut)
			}
		}
	}
}

func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	dir := filepath.Dir(agent(t, nil))
	leftover := filepath.Join(dir, "leftover")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: leftover})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		filepath.Join(dir, "nobody"):   "no agent listens on " + dir + `/nobody: start one with "sluice-agent dev --manifests DIR", or name its socket with --socket, or a cluster with --context: dial unix`,
		leftover:                       "no agent listens on " + leftover,
		dir + strings.Repeat("/x", 60): "ask the agent on " + dir,
	} {
		code, _, errOut := sluicectl(socket, "", "get", "status")
		if code != ExitError || !strings.Contains(errOut, want) || strings.Contains(errOut, "http://") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit code %d, error %q, want one line with %q", socket, code, errOut, want)
		}
	}
}

func TestExplanationsAgreeWithTables(t *testing.T) {
	for want, answer := range map[string]view.Answer{
		"renderer acl  permit  agrees\n    no table restricts it\n":                                       {Renderer: "acl", Allowed: true, Agrees: true, Decides: []api.Direction{api.Egress}},
		"renderer acl  neither end is a pod of this node\n":                                               {Renderer: "acl", Allowed: true, Agrees: true},
		"renderer acl  deny  DISAGREES: please report this\n":                                             {Renderer: "acl", Decides: []api.Direction{api.Ingress}},
		"what is installed DIFFERS from the specification: please report this\n":                          {Renderer: "acl", Decides: []api.Direction{api.Ingress}},
		"renderer acl  deny  not enforced yet: see \"sluicectl get status\"\n":                            {Renderer: "acl", Pending: true, Decides: []api.Direction{api.Ingress}},
		"what is installed differs: the newest state is not enforced yet, see \"sluicectl get status\"\n": {Renderer: "acl", Pending: true, Decides: []api.Direction{api.Ingress}},
		"    no table restricts it\n    acl 7 of somebody else decides first\n":                           {Renderer: "acl", Allowed: true, Agrees: true, Decides: []api.Direction{api.Egress}, Foreign: []string{"acl 7 of somebody else decides first"}},
		"renderer xdp  not asked: it does not explain itself\n":                                           {Renderer: "xdp", Allowed: true, Agrees: true, Unasked: "it does not explain itself", Decides: []api.Direction{api.Egress}},
	} {
		socket := agent(t, map[string]http.HandlerFunc{"POST /v1/explain": says([]view.Explanation{{Allowed: true, Renderers: []view.Answer{answer}}})})
		if _, out, _ := sluicectl(socket, "", "explain", "-v", "a/b", "c/d:80"); !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
}

func TestStatusNamesFaults(t *testing.T) {
	s := view.Status{
		Version: "v1", Source: "etcd", Revision: 4, Seen: 5,
		Renderers: []view.RendererStatus{{Name: "a", InSync: true, Foreign: []string{"acl 7 of somebody else"}}, {Name: "b", Error: "no interface"}, {Name: "c"}, {Name: "d", InSync: true, Dataplane: "not there"},
			{Name: "e", InSync: true},
			{Name: "f", InSync: true, BusySince: time.Now().Add(-time.Minute)}, {Name: "g", InSync: true, BusySince: time.Now()}},
		Problems: []api.Problem{{Object: "Pod a/b", Reason: "is odd"}},
	}
	_, out, _ := sluicectl(agent(t, map[string]http.HandlerFunc{"GET /v1/status": says(s)}), "", "get", "status")
	for _, want := range []string{"4 enforced, 5 seen", "renderer a  in sync ", "renderer b  not in sync: no interface ", "renderer c  nothing enforced yet ", "renderer d  not in sync: not there ",
		"renderer e  in sync ", "renderer f  in sync; at work on one change for 1m0s, and later ones wait for it ", "renderer g  in sync ", "problem: Pod a/b: is odd\n", "renderer a: acl 7 of somebody else\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestMatrixShowsDifferences(t *testing.T) {
	for differ, want := range map[int]string{0: "every verdict is that of the specification", 1: "1 verdict not as the specification says", 2: "2 verdicts not as"} {
		_, out, _ := sluicectl(agent(t, map[string]http.HandlerFunc{"GET /v1/matrix": says(view.Matrix{Differ: differ})}), "", "matrix", "--open")
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestCommandsThatNeedNoAgent(t *testing.T) {
	code, out, _ := sluicectl("/nowhere", "", "version", "-o", "json")
	var info map[string]string
	if err := json.Unmarshal([]byte(out), &info); code != ExitOK || err != nil || info["go"] == "" {
		t.Errorf("version: exit code %d, %q, %v", code, out, err)
	}
	for _, args := range [][]string{{"get", "pods", "-o", "xml"}, {"explain", "a"}, {"nonsense"}, {"test", "--through", "vpp", "x"}, {"explain", "a/b", "c/d"}, {"apply"}} {
		if code, out, errOut := sluicectl("/nowhere", "", args...); code != ExitError || out != "" || !strings.HasPrefix(errOut, "sluicectl: ") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
}

// brokenPipe is a reader that has gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestOutputErrorsAreReturned(t *testing.T) {
	for _, format := range []string{"table", "json", "yaml"} {
		var e bytes.Buffer
		if code := Run([]string{"version", "-o", format}, nil, brokenPipe{}, &e); code != ExitError || e.Len() == 0 {
			t.Errorf("%s: exit code %d, %q", format, code, e.String())
		}
	}
}

func TestRunSuggestsSimilarCommands(t *testing.T) {
	for args, want := range map[string]string{
		"get foo":                 `there is no kind "foo": want pods, policies, namespaces, sets, tables, rules, audit, limits, endpoints, nodes, status`,
		"get podz":                `there is no kind "podz": did you mean pods?`,
		"get pdos":                `there is no kind "pdos": did you mean pods?`,
		"get polices":             `there is no kind "polices": did you mean policies?`,
		"describe sets":           `describe takes pods, policies, nodes and endpoints: for sets there is "get sets"`,
		"describe pod":            `describe wants a name; "get pods" lists them`,
		"describe":                `describe wants a kind and a name, as in "sluicectl describe pod shop/web-0"`,
		"watch foo":               `sluicectl watch has no "foo": want verdicts`,
		"watch verdict":           `sluicectl watch has no "verdict": did you mean verdicts?`,
		"store acept":             `sluicectl store has no "acept": did you mean accept?`,
		"gett pods":               `unknown command "gett" for "sluicectl": did you mean get or test?`,
		"xyzzy":                   `unknown command "xyzzy" for "sluicectl"`,
		"get pods --namspace":     `unknown flag: --namspace: did you mean --namespace?`,
		"get pods --xyzzy":        `unknown flag: --xyzzy: see sluicectl get --help`,
		"get pods -o jsn":         `invalid argument "jsn" for "-o, --output" flag: did you mean json?`,
		"get pods -o foo":         `invalid argument "foo" for "-o, --output" flag: want wide, name, json, yaml, jsonpath=PATH or go-template=TEMPLATE`,
		"get pods -n a -A":        "--namespace and --all-namespaces exclude each other: leave one of them out",
		"get pods -w --sort-by x": "--watch prints what changes when it does: leave --sort-by out",
		"get sets -l app=web":     "--selector selects pods, what is about them, and namespaces: sets have no labels",
		"get pods -l =,=":         `--selector "=,=": found '=', expected: !, identifier, or 'end of string'`,
		"get pods --policy x":     "--policy is for nodes, not for pods",
		"get status web":          `an agent has one status, and no status is named "web"`,
		"get status -w":           "status is not a list: --watch, --selector and --sort-by are for lists",
	} {
		code, out, errOut := sluicectl("nowhere", "", strings.Fields(args)...)
		if code != ExitError || out != "" || !strings.HasPrefix(errOut, "sluicectl: "+want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, %q, want %q", args, code, out, errOut, want)
		}
	}
	if code, out, _ := sluicectl("nowhere", "", "get"); code != ExitOK || !strings.Contains(out, "sluicectl get pods -n shop") {
		t.Errorf("without a kind: exit code %d, %q", code, out)
	}
}

func TestArgumentErrorsNameMissingOnes(t *testing.T) {
	empty := t.TempDir()
	for want, args := range map[string][]string{
		`explain asks about a flow: want SRC and DST:PORT/PROTO, as in "sluicectl explain shop/web-0`: {"explain", "shop/web-0"},
		`inject asks about a flow: want SRC and DST:PORT/PROTO`:                                       {"inject"},
		`sluicectl: -f is needed`: {"apply"},
		`-f is needed`:            {"convert"},
		"-f is needed: ":          {"delete"},
		empty + ": no manifest is there; want files *.yaml, *.yml or *.json": {"explain", "--manifests", empty, "a/b", "a/c:80"},
	} {
		if code, _, errOut := sluicectl("nowhere", "", args...); code != ExitError || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, errOut, want)
		}
	}
	var version bytes.Buffer
	if code := Run([]string{"--version"}, nil, &version, io.Discard); code != ExitOK || !strings.HasPrefix(version.String(), "sluicectl version ") {
		t.Errorf("--version: exit code %d, %q", code, version.String())
	}
}

// TestCertificatesAllowApplyToEtcd as its guide sets it up.
func TestCertificatesAllowApplyToEtcd(t *testing.T) {
	authority := etcd.NewAuthority(t)
	members := etcd.Start(t, etcd.Options{Authority: authority})
	cert, key := authority.Issue(t, "sluice-ksr")
	const manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"
	args := []string{"apply", "-f", "-", "--etcd-endpoints", strings.Join(members.Endpoints(), ","), "--etcd-ca", authority.CA}
	code, out, errOut := sluicectl("nowhere", manifest, append(args, "--etcd-cert", cert, "--etcd-key", key)...)
	if code != ExitOK || !strings.HasPrefix(out, "namespace/shop created\n1 written") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, _, errOut := sluicectl("nowhere", manifest, append(args, "--etcd-cert", cert)...); code != ExitError || !strings.Contains(errOut, "--etcd-cert and --etcd-key belong together") {
		t.Errorf("without the key: exit code %d, %q", code, errOut)
	}
	// Who runs the agent of a node has its settings: they do not change whom the command asks.
	t.Setenv("SLUICE_ETCD_ENDPOINTS", members.Endpoints()[0])
	if code, _, errOut := sluicectl("/nowhere", manifest, "apply", "-f", "-"); code != ExitError || !strings.Contains(errOut, "no agent listens on /nowhere") {
		t.Errorf("with endpoints in the environment: exit code %d, %q", code, errOut)
	}
}

func TestConnectionErrorNamesSocketOfRoot(t *testing.T) {
	yes, no := func(string) bool { return true }, func(string) bool { return false }
	for name, tc := range map[string]struct {
		socket string
		user   int
		there  func(string) bool
		want   string
	}{
		"an agent of root":     {"/tmp/sluice-7/agent.sock", 7, yes, "use sudo, root's is on /run/sluice/agent.sock"},
		"no agent of root":     {"/tmp/sluice-7/agent.sock", 7, no, "start one with"},
		"that agent was asked": {view.RootSocket, 7, yes, "start one with"},
		"it is root who asks":  {"/elsewhere", 0, yes, "start one with"},
	} {
		if got := remedy(tc.socket, tc.user, tc.there); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
