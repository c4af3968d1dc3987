package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// modernHost is a kernel that has everything, and a process that may do everything.
var modernHost = config.Host{
	Status:  func() (string, error) { return "CapEff:\t000001ffffffffff\n", nil },
	Release: func() string { return "6.18.1" },
}

// configOf returns what flags say.
func configOf(t *testing.T, args ...string) config.Config {
	t.Helper()
	f := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.RunFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listenAt listens on a socket until the test ends.
func listenAt(t *testing.T, network, path string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // it may be closed already
	return l
}

func TestCheckFindsEachFault(t *testing.T) {
	dir := filepath.Dir(socketPath(t))
	path := func(name string) string { return filepath.Join(dir, name) }
	listenAt(t, vpp.APINetwork, path("vpp"))
	listenAt(t, vpp.StatsNetwork, path("stats"))
	listenAt(t, vpp.APINetwork, path("taken"))
	dead := listenAt(t, vpp.APINetwork, path("dead")).(*net.UnixListener)
	dead.SetUnlinkOnClose(false)
	if err := errors.Join(dead.Close(), os.WriteFile(path("file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	tcp := listenAt(t, "tcp", "127.0.0.1:0").Addr().String()
	old, weak := modernHost, modernHost
	old.Release = func() string { return "5.14.0-427.el9" }
	weak.Status = func() (string, error) { return "CapEff:\t0000000000000000\n", nil }
	noTCX, blind := modernHost, modernHost
	noTCX.Release = func() string { return "5.15.0-91-generic" }
	blind.Status = func() (string, error) { return "", os.ErrNotExist }
	xdp := []string{"--renderers", "xdp"}

	for _, tc := range []struct {
		check string
		args  []string
		host  config.Host
		level preflight.Level
		want  string
	}{
		{"node name", nil, modernHost, preflight.OK, "node-1"},
		{"node name", []string{"--node="}, modernHost, preflight.Error, "--node is needed: name this node"},
		{"etcd settings", nil, modernHost, preflight.OK, "127.0.0.1:2379, without TLS"},
		{"etcd settings", []string{"--etcd-endpoints", "foo:bar:baz"}, modernHost, preflight.Error, `--etcd-endpoints "foo:bar:baz": too many colons`},
		{"etcd settings", []string{"--etcd-ca", "/no/ca"}, modernHost, preflight.Error, "--etcd-ca: open /no/ca: no such file"},
		{"state file", nil, modernHost, preflight.OK, path("state/file")},
		{"state file", []string{"--state-file="}, modernHost, preflight.OK, "none: "},
		{"state file", []string{"--state-file", path("file/x")}, modernHost, preflight.Warning, "--state-file: " + path("file") + " is not a folder: name a file"},
		{"api socket", nil, modernHost, preflight.OK, path("api")},
		{"api socket", []string{"--api-socket", path("dead")}, modernHost, preflight.OK, path("dead")},
		{"api socket", []string{"--api-socket", path("taken")}, modernHost, preflight.Error, "--api-socket: another process serves " + path("taken") + ": stop"},
		{"api socket", []string{"--api-socket", path("file")}, modernHost, preflight.Error, "--api-socket: " + path("file") + " exists and is not a socket"},
		{"api socket", []string{"--api-socket", path("file/x")}, modernHost, preflight.Error, "--api-socket: "},
		{"metrics address", []string{"--metrics-address", "127.0.0.1:0"}, modernHost, preflight.OK, ""},
		{"metrics address", []string{"--metrics-address", tcp}, modernHost, preflight.Error, "another process listens on " + tcp + ": address already in use: choose another"},
		{"metrics address", nil, modernHost, "", ""},
		{"vpp socket", nil, modernHost, preflight.OK, path("vpp")},
		{"vpp socket", []string{"--vpp-socket", path("none")}, modernHost, preflight.Error, "there is no socket " + path("none") + ": VPP is not running"},
		{"vpp socket", []string{"--vpp-socket", path("file")}, modernHost, preflight.Error, path("file") + " is not a socket: start VPP"},
		{"vpp socket", []string{"--vpp-socket", path("dead")}, modernHost, preflight.Error, "nothing listens on socket " + path("dead")},
		{"vpp socket", []string{"--acl-target", "ligato"}, modernHost, "", ""},
		{"vpp socket", xdp, modernHost, "", ""},
		{"vpp stats socket", nil, modernHost, preflight.OK, path("stats")},
		{"vpp stats socket", []string{"--vpp-stats-socket", path("vpp")}, modernHost, preflight.Warning, "socket " + path("vpp") + " has the wrong type"},
		{"vpp stats socket", []string{"--vpp-stats-socket="}, modernHost, "", ""},
		{"kernel", nil, modernHost, "", ""},
		{"kernel", xdp, modernHost, preflight.OK, "6.18.1"},
		{"kernel", xdp, noTCX, preflight.OK, "5.15.0-91-generic; it has no TCX"},
		{"kernel", xdp, old, preflight.Error, "kernel 5.14.0-427.el9 is too old for renderer xdp: want 5.15 at least"},
		{"capabilities", xdp, modernHost, preflight.OK, "none is missing"},
		{"capabilities", xdp, weak, preflight.Error, "renderer xdp needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, which this process does not have: start"},
		{"capabilities", xdp, blind, preflight.Warning, "read the capabilities of this process"},
		{"bpf file system", append(xdp, "--xdp-pins", path("pins")), modernHost, preflight.Error, "--xdp-pins: " + dir + " is not in a bpf file system: mount one by: mount -t bpf bpf"},
		{"xdp uplinks", append(xdp, "--xdp-uplink", "lo"), modernHost, preflight.OK, "lo"},
		{"xdp uplinks", append(xdp, "--xdp-uplink", "lo,sluice-none"), modernHost, preflight.Error, "--xdp-uplink: interface sluice-none: "},
	} {
		args := append([]string{
			"--node", "node-1", "--api-socket", path("api"), "--state-file", path("state/file"), "--vpp-socket", path("vpp"), "--vpp-stats-socket", path("stats"),
		}, tc.args...)
		var got preflight.Result
		for _, r := range preflight.Run(t.Context(), configOf(t, args...).Preflight(tc.host)) {
			if r.Name == tc.check {
				got = r
			}
		}
		if got.Level != tc.level || !strings.Contains(got.Line(), tc.want) {
			t.Errorf("%s with %v: %s %q, want %s %q", tc.check, tc.args, got.Level, got.Line(), tc.level, tc.want)
		}
	}
	if entries, err := filepath.Glob(path("*")); err != nil || len(entries) != 5 {
		t.Errorf("a check made or removed something: %v, %v", entries, err)
	}
}

func TestRunEndsAtOnceOnFatalCheck(t *testing.T) {
	cfg := configOf(t, "--node", "node-1", "--etcd-endpoints", "foo:bar:baz", "--api-socket", socketPath(t), "--state-file=")
	err := run(t.Context(), cfg, discard, logtail.New(io.Discard))
	if want := `--etcd-endpoints "foo:bar:baz": too many colons in address; want host:port`; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want %q on one line", err, want)
	}
}

// twoNodes are the objects of a cluster whose node-1 has a Node object and whose node-2 has pods
// only.
const twoNodes = `
{apiVersion: v1, kind: Node, metadata: {name: node-1}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: node-2}
status: {phase: Running, podIPs: [{ip: 10.1.0.1}]}
`

func TestCheckAsksEtcd(t *testing.T) {
	server := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	find := func(node string) map[string]preflight.Result {
		s := storeCheck{cfg: configOf(t, "--node", node, "--etcd-endpoints", server.Endpoints()[0])}
		defer func() {
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}()
		out := map[string]preflight.Result{}
		for _, r := range preflight.Run(t.Context(), s.checks()) {
			out[r.Name] = r
		}
		return out
	}
	want := func(got preflight.Result, level preflight.Level, text string) {
		t.Helper()
		if got.Level != level || !strings.Contains(got.Line(), text) {
			t.Errorf("%s %s %q, want %s %q", got.Name, got.Level, got.Line(), level, text)
		}
	}
	empty := find("node-1")
	want(empty["etcd"], preflight.OK, "127.0.0.1:")
	want(empty["reflector"], preflight.Warning, "no active reflector below /sluice/; state may be stale: start sluice-ksr")
	want(empty["state in etcd"], preflight.Warning, "etcd has no state below /sluice/k8s/")
	want(empty["node in etcd"], preflight.Warning, "no Pod or Node object names any node")

	write(t, reflect.NewReflector(server.Client(), model.DefaultPrefix, discard), twoNodes)
	leader := model.Entry{Key: model.LeaderKey(model.DefaultPrefix, "ksr"), Value: []byte("{}")}
	if err := server.Client().Write(t.Context(), []model.Entry{leader}, nil); err != nil {
		t.Fatal(err)
	}
	full := find("node-1")
	want(full["reflector"], preflight.OK, "")
	want(full["state in etcd"], preflight.OK, "revision ")
	want(full["node in etcd"], preflight.OK, "node-1")
	want(find("node-2")["node in etcd"], preflight.OK, "node-2")
	want(find("node-11")["node in etcd"], preflight.Warning, `no Pod or Node object names node "node-11": did you mean --node node-1?`)
	want(find("TYPO")["node in etcd"], preflight.Warning, `names node "TYPO": --node is one of node-1, node-2`)
}

func TestCheckWarnsWhenEtcdDoesNotAnswer(t *testing.T) {
	l := listenAt(t, "tcp", "127.0.0.1:0")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := storeCheck{cfg: configOf(t, "--etcd-endpoints", l.Addr().String())}
	report := preflight.Run(t.Context(), s.checks())
	if len(report) != 1 || report[0].Level != preflight.Warning || !strings.Contains(report[0].Line(), "etcd at "+l.Addr().String()+" does not answer: ") {
		t.Errorf("%+v", report)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestCheckCommandExitsByItsFindings(t *testing.T) {
	server := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	dir := filepath.Dir(socketPath(t))
	listenAt(t, vpp.APINetwork, filepath.Join(dir, "vpp"))
	good := []string{
		"check", "--node", "node-1", "--etcd-endpoints", server.Endpoints()[0], "--api-socket", filepath.Join(dir, "api"), "--state-file", filepath.Join(dir, "state"),
		"--vpp-socket", filepath.Join(dir, "vpp"), "--vpp-stats-socket", filepath.Join(dir, "none"),
	}
	for _, tc := range []struct {
		args             []string
		code             int
		out, errOut, not string
	}{
		{nil, 0, "vpp stats socket  warning  --vpp-stats-socket: there is no socket", "", "  error "},
		{[]string{"--vpp-socket", filepath.Join(dir, "none")}, 1, "vpp socket        error    --vpp-socket: there is no socket", "", ""},
		{[]string{"--renderers", "foo"}, 1, `settings  error   --renderers "foo": want acl, session, vpp-plugin or xdp`, "", "etcd"},
		{[]string{"--exempt-traffic", "everything"}, 1, `settings  error   --exempt-traffic "everything": want neighbours, icmp-errors, an address or a CIDR`, "", "etcd"},
		{[]string{"--xdp-flows", "64"}, 0, "settings          warning  --xdp-flows has no effect: --renderers has no xdp", "", ""},
		{[]string{"-o", "json"}, 0, `"check": "vpp stats socket",`, "", "CHECK"},
		{[]string{"-o", "yaml"}, 0, "- check: settings\n  detail: read\n  result: ok\n", "", "CHECK"},
		{[]string{"-o", "xml"}, 2, "", `sluice-agent: --output "xml": want table, json or yaml`, ""},
		{[]string{"--frobnicate"}, 2, "", "sluice-agent: unknown flag: --frobnicate: see sluice-agent check --help", ""},
		{[]string{"now"}, 2, "", `sluice-agent: check takes no arguments, and got "now"`, ""},
	} {
		var out, errOut bytes.Buffer
		code := Main(append(good, tc.args...), &out, &errOut)
		if code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(errOut.String(), tc.errOut) || (tc.errOut == "") != (errOut.Len() == 0) ||
			tc.not != "" && strings.Contains(out.String(), tc.not) {
			t.Errorf("%v: exit code %d, want %d with %q and %q:\n%s%s", tc.args, code, tc.code, tc.out, tc.errOut, &out, &errOut)
		}
	}
	var out bytes.Buffer
	var rows []map[string]string
	if Main(append(good, "-o", "json"), &out, &out); json.Unmarshal(out.Bytes(), &rows) != nil || len(rows) < 8 || rows[0]["result"] != "ok" {
		t.Errorf("not a list of checks: %s", fmt.Sprint(rows))
	}
}

func TestStatusNamesSocketOfMissingVPP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vpp.sock")
	a := prepared(t, func(c *config.Config) { c.VPP.Socket = path })
	a.run(t)
	a.reflect(t, demo)
	for {
		code, body := a.ask("GET", "/readyz", "")
		if code == 503 && strings.Contains(body, "renderer ") {
			if want := "not connected to the vswitch: there is no socket " + path; !strings.Contains(body, want) {
				t.Errorf("readyz says %q, want %q", body, want)
			}
			return
		}
		select {
		case <-a.metrics.Happened(): // a transaction
		case <-t.Context().Done():
			t.Fatalf("readyz says %d %q", code, body)
		}
	}
}
