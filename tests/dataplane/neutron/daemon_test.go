package neutron

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.0.0.10}], hostIPs: [{ip: 192.168.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, labels: {app: client}}
spec: {nodeName: n2}
status: {phase: Running, podIPs: [{ip: 10.0.0.12}], hostIPs: [{ip: 192.168.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
    ports: [{port: %d}]
`

// replica is a sluice-neutron in this process.
type replica struct {
	socket, metrics string
	log             *programs.Buffer
	stop            context.CancelFunc
	done            chan error
}

func startReplica(t *testing.T, f *fixture, etcd, name string, connect ...string) *replica {
	t.Helper()
	r := &replica{socket: filepath.Join(t.TempDir(), "s"), metrics: programs.FreeAddress(t), log: &programs.Buffer{}, done: make(chan error, 1)}
	cmd := agent.NewNeutronCommand(r.log)
	cmd.SetErr(r.log)
	cmd.SetArgs(append(connect, []string{
		"--etcd-endpoints", etcd, "--neutron-network", f.network, "--neutron-mark", f.options.Cluster,
		"--api-socket", r.socket, "--metrics-address", r.metrics, "--identity", name, "--leader-ttl", "2s", "--neutron-refresh", "2s",
	}...))
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { r.done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s:\n%s", name, r.log.String())
		}
	})
	return r
}

// end ends the replica and returns its error.
func (r *replica) end() error {
	r.stop()
	return <-r.done
}

// wait waits until a condition holds.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if err := programs.Poll(patience, func() error {
		if !holds() {
			return errors.New(what)
		}
		return nil
	}); err != nil {
		t.Fatalf("not within %s: %v", patience, err)
	}
}

func (r *replica) ctl(args ...string) string {
	var out bytes.Buffer
	cli.Run(append([]string{"--socket", r.socket}, args...), strings.NewReader(""), &out, &out)
	return out.String()
}

// TestDaemonEnforcesWhileItLeads: two replicas, of which one works; the other continues. A change
// that was made meanwhile, and what others have deleted, are caught up with.
func TestDaemonEnforcesWhileItLeads(t *testing.T) {
	f := newFixture(t, need(t, false), secgroup.Options{})
	store, err := embedded.Start(t.Context(), embedded.Config{ClientURL: "http://127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	f.must(err)
	defer func() { f.must(store.Close()) }()
	dir := t.TempDir()
	tell := func(port int) {
		t.Helper()
		f.must(os.WriteFile(filepath.Join(dir, "shop.yaml"), fmt.Appendf(nil, shop, port), 0o600))
		log := slog.New(slog.DiscardHandler)
		_, err := manifests.NewDirectory(dir, reflect.NewReflector(store.Client(), "/sluice", log), log, nil).Sync(t.Context())
		f.must(err)
	}
	node1, node2 := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2")
	f.port(webAt[0])
	f.port(clientAt[0])
	tell(80)
	etcd := fmt.Sprint(store.Endpoints()[0])
	first := startReplica(t, f, etcd, "first", "--neutron-url", f.s.URL)
	passes := func(port uint16) bool { return f.held().Passes(flow(clientAt[0], webAt[0], api.TCP, port)) }
	wait(t, "port 80 alone is open", func() bool { return passes(80) && !passes(81) })
	f.check(map[api.Flow]bool{
		flow(node1, webAt[0], api.TCP, 9): true, flow(node2, webAt[0], api.TCP, 9): false, flow(webAt[0], clientAt[0], api.TCP, 9): true,
	})
	wait(t, "the leader is ready", func() bool { return answers(t.Context(), "http://"+first.metrics+"/readyz") == nil })
	if out := first.ctl("explain", "shop/client", "shop/web:81"); !strings.Contains(out, "DENIED") || !strings.Contains(out, "secgroup") && strings.Contains(out, "disagree") {
		t.Errorf("explain says\n%s", out)
	}
	if out := first.ctl("get", "status"); !strings.Contains(out, "secgroup") {
		t.Errorf("status is\n%s", out)
	}
	second := startReplica(t, f, etcd, "second", "--neutron-url", f.s.URL)
	wait(t, "the second stands by", func() bool { return answers(t.Context(), "http://"+second.metrics+"/readyz") == nil })
	if strings.Contains(second.log.String(), "acquired leadership") {
		t.Fatal("both replicas lead")
	}
	if err := first.end(); err != nil {
		t.Errorf("the first replica ends with %v", err)
	}
	tell(81)
	wait(t, "the second enforces the new policy", func() bool { return !passes(80) && passes(81) })
	for _, p := range f.ports {
		_, err := f.options.API.Apply(t.Context(), secgroup.Op{Kind: secgroup.SetGroups, ID: p.ID, Groups: []string{f.defaultGroup()}, Revision: f.revision(p.ID)})
		f.must(err)
	}
	wait(t, "the second repairs what others change", func() bool { return !passes(80) && passes(81) })
	if err := second.end(); err != nil {
		t.Errorf("the second replica ends with %v", err)
	}
	if passes(80) || !passes(81) {
		t.Error("without a leader the groups are not what they were")
	}
}

func (f *fixture) revision(port string) int {
	f.t.Helper()
	all, err := f.options.API.Ports(f.t.Context())
	f.must(err)
	for _, p := range all {
		if p.ID == port {
			return p.Revision
		}
	}
	return 0
}

// TestDaemonRefusesBadSettings: one line, which names the setting, and exit code 2.
func TestDaemonRefusesBadSettings(t *testing.T) {
	t.Setenv("OS_CLOUD", "")
	for args, want := range map[string]string{
		"":                                    "--os-cloud is needed",
		"--neutron-url http://x --os-cloud y": "exclude each other",
		"--neutron-url http://x --neutron-ports-by luck":      "--neutron-ports-by",
		"--neutron-url http://x --neutron-max-rules 1":        "--neutron-max-rules",
		"--neutron-url http://x --neutron-refresh 1ms":        "--neutron-refresh",
		"--neutron-url http://x --neutron-network=,":          "--neutron-network has an empty ID",
		"--neutron-url http://x --exempt-traffic 10.0.0.0/99": "--exempt-traffic",
	} {
		var out bytes.Buffer
		if code := agent.NeutronMain(strings.Fields(args), &out, &out); code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: code %d, %s; want %q", args, code, out.String(), want)
		}
	}
}
