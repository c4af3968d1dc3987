package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/tests/lab/wires"
)

// doubts waits until an agent reports why it does not trust its store.
func (p *process) doubts(why string) {
	p.t.Helper()
	eventually(p.t, func() error {
		code, body, err := ask(p.socket, "/readyz")
		if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(string(body), "the store is not believed") || !strings.Contains(string(body), why) {
			return fmt.Errorf("/readyz is %d %s %w, want %q", code, body, err, why)
		}
		return nil
	})
	if out, code := p.ctl("get", "status"); code != 0 || !strings.Contains(out, why) {
		p.t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestStoreEmptiedKeepsRulesInKernel restarts an agent against an etcd without
// anything, and with a prefix that is wrong, under traffic.
func TestStoreEmptiedKeepsRulesInKernel(t *testing.T) {
	for name, c := range map[string]struct {
		empty bool
		args  []string
		why   string
	}{
		"an empty etcd":  {true, nil, "nothing is below /sluice/k8s/"},
		"a wrong prefix": {false, []string{"--etcd-prefix", "/sliuce"}, "nothing is below /sliuce/k8s/"},
	} {
		t.Run(name, func(t *testing.T) {
			n := startKernelNode(t, "auto")
			n.TryDemo()
			counts := []*wires.Count{n.Send("friend", "server", 4, 80, true), n.Send("stranger", "server", 4, 80, false)}
			n.kill()
			n.agent = nil
			full, before := n.etcd, n.files()
			if c.empty {
				n.etcd = startEtcd(t)
				n.near = n.bridge()
			}
			saved, err := os.ReadFile(filepath.Join(n.state, "state"))
			n.start(c.args...)
			n.agent.doubts(c.why)
			n.TryDemo()
			if d := cmp.Diff(before, n.files()); d != "" {
				t.Errorf("what is pinned changed (-before +after):\n%s", d)
			}
			if again, err2 := os.ReadFile(filepath.Join(n.state, "state")); string(saved) != string(again) || (err == nil) != (err2 == nil) {
				t.Errorf("the state file changed: %v, %v", err, err2)
			}
			n.Right(50, counts...)
			n.kill()

			n.etcd, n.near = full, ""
			n.near = n.bridge()
			n.run()
			n.TryDemo()
		})
	}
}

// TestStoreEmptiedKeepsRulesInVPP is the same for a VPP, until an operator says that
// the emptiness is meant.
func TestStoreEmptiedKeepsRulesInVPP(t *testing.T) {
	t.Parallel()
	v, file := startVPP(t, filepath.Join(socketDir(t), "vpp.sock")), filepath.Join(t.TempDir(), "state")
	v.attachDemo()
	full, empty := startEtcd(t), startEtcd(t)
	store(t, full, demo)
	run := func(etcd string) *process {
		return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--state-file", file)
	}
	a := run(full)
	a.ready()
	a.stop(syscall.SIGTERM)
	before := v.installed()
	a = run(empty)
	a.doubts("nothing is below /sluice/k8s/")
	if d := cmp.Diff(before, v.installed()); d != "" {
		t.Errorf("something changed (-before +after):\n%s", d)
	}
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	ctl(t, "store", "accept", "--etcd-endpoints", empty, "--cluster", "manifests")
	a.ready()
	a.stop(syscall.SIGTERM)
}
