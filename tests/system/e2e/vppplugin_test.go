package e2e

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
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
	v.wantDemo(t, "at first")
	if out, code := a.ctl("get", "status"); code != 0 || !strings.Contains(out, "vpp-plugin") {
		t.Errorf("get status: %d\n%s", code, out)
	}
	a.Signal(syscall.SIGKILL)
	<-a.Ended
	v.wantDemo(t, "without an agent")
	a = run()
	a.ready()
	v.wantDemo(t, "with the next agent")

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

// TestVPPMovesToPluginAndBackUnderTraffic has agents go from ACLs to the plugin and back, as the
// guide says. All the time, packets meet the verdicts of the policy: first ones, and those of a
// connection that is older than all agents but the first.
func TestVPPMovesToPluginAndBackUnderTraffic(t *testing.T) {
	name, config := vpptest.Plugin(t)
	v := &realVPP{port: 20000}
	v.attach(vpptest.LaunchWith(t, config+"sluice { released }\n", name))
	etcd := startEtcd(t)
	store(t, etcd, demo)
	memory := filepath.Join(t.TempDir(), "memory")
	run := func(renderers string, more ...string) *process {
		return startAgent(t, append([]string{
			"run", "--node", "node-1", "--etcd-endpoints", etcd, "--renderers", renderers, "--vpp-plugin-memory", memory, "--vpp-socket", v.Socket(), "--state-file=",
		}, more...)...)
	}
	a := run("acl")
	a.ready()
	const ack = 16
	old := api.Flow{Src: netip.MustParseAddr(friend), Dst: netip.MustParseAddr(server), Protocol: api.TCP, SrcPort: 19999, DstPort: 80}
	first := vpptest.First(old, 1)
	if len(v.Send([]vpptest.Packet{first}).Left) != 1 {
		t.Fatal("the connection is not made")
	}
	rounds := 0
	traffic := func(step string) {
		t.Helper()
		rounds++
		if err := v.demoEnforced(); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		later := first
		later.TCPFlags, later.Mark = ack, 2
		answer := vpptest.Packet{Packet: later.Reply(), Mark: 3}
		if left := v.Send([]vpptest.Packet{later, answer}).Left; len(left) != 2 {
			t.Fatalf("%s: of the old connection only %v pass", step, left)
		}
	}
	until := func(step string, done func() bool) {
		t.Helper()
		for range 3 {
			traffic(step)
		}
		vpptest.Eventually(t, step, func() bool { traffic(step); return done() })
	}
	ready := func() bool { _, body, err := ask(a.socket, "/readyz"); return err == nil && string(body) == "ok\n" }
	next := func(renderers string, more ...string) {
		t.Helper()
		a.stop(syscall.SIGTERM)
		traffic("no agent, before " + renderers)
		a = run(renderers, more...)
		until(renderers, ready)
	}
	shows := func(want bool, command, what string) {
		t.Helper()
		if out := v.CLI("%s", command); strings.Contains(out, what) != want {
			t.Errorf("%s says %s", command, out)
		}
	}
	next("acl,vpp-plugin")
	shows(true, "show sluice", ": bound")
	shows(false, "show sluice", "released")
	next("vpp-plugin")

	ctl(t, here(guideCommand(t, "sluicectl store accept --etcd-prefix"), etcd, v.Socket())...)
	args := slices.Clone(here(guideCommand(t, "sluice-agent run --node node-1 --etcd-prefix"), etcd, v.Socket()))
	args[slices.Index(args, "acl,session")] = "acl"
	empty := startAgent(t, append(args, "--metrics-address=")...)
	until("ACLs are removed", func() bool { return !strings.Contains(v.rules(), "sluice:") })
	empty.stop(syscall.SIGTERM)
	until("the plugin alone", ready)

	next("acl,vpp-plugin", "--block-unknown-pods=false") // the plugin does that
	shows(true, "show acl-plugin acl", "sluice:")
	next("acl")
	v.Do("sluice release")
	until("ACLs alone", ready)
	shows(false, "show sluice", ": bound")
	t.Logf("%d times all flows were tried", rounds)
}
