package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// TestVPPPluginEnforcesWhileAgentsComeAndGo runs agents on a VPP with Sluice's plugin. The agent
// is killed, VPP is killed, and the policy changes.
func TestVPPPluginEnforcesWhileAgentsComeAndGo(t *testing.T) {
	name, config := vpptest.Plugin(t)
	memory := filepath.Join(t.TempDir(), "memory")
	v := &realVPP{port: 20000}
	v.attach(vpptest.LaunchWith(t, config+"sluice { directory "+memory+" }\n", name))
	etcd := startEtcd(t)
	store(t, etcd, demo)
	run := func() *process {
		return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--renderers", "vpp-plugin", "--vpp-plugin-memory", memory, "--vpp-socket", v.Socket(), "--state-file=")
	}
	if v.permits(friend, server, 80) || v.permits(friend, stranger, 80) {
		t.Error("pods are open before the first agent")
	}
	a := run()
	a.ready()
	enforced := func(when string) {
		t.Helper()
		if err := v.demoEnforced(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	enforced("at first")
	if out, code := a.ctl("get", "status"); code != 0 || !strings.Contains(out, "vpp-plugin") {
		t.Errorf("get status: %d\n%s", code, out)
	}
	a.Signal(syscall.SIGKILL)
	<-a.Ended
	enforced("without an agent")
	a = run()
	a.ready()
	enforced("with the next agent")

	store(t, etcd, strings.ReplaceAll(demo, "port: http", "port: 81"))
	eventually(t, func() error {
		if v.permits(friend, server, 80) || !v.permits(friend, server, 81) {
			return errors.New("the policy has not changed yet")
		}
		return nil
	})
	v.Kill()
	t.Logf("noticed after %s", a.notReady("renderer vpp-plugin: "))
	v.Start()
	v.attach(v.Process)
	a.ready()
	if v.permits(friend, server, 80) || !v.permits(friend, server, 81) || v.permits(stranger, server, 81) {
		t.Error("another policy is in force after a restart of VPP")
	}
}
