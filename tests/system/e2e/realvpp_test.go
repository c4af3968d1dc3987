package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// realVPP is a VPP process with the pods of the demo, on interfaces of the packet generator.
type realVPP struct {
	*vpptest.Network
	port uint16 // of the last flow
}

// startRealVPP starts the VPP that the environment names.
func startRealVPP(t *testing.T) *realVPP {
	t.Helper()
	v := &realVPP{port: 20000}
	v.attach(vpptest.Launch(t))
	return v
}

// attach gives the pods of the demo their interfaces.
func (v *realVPP) attach(process *vpptest.Process) {
	process.TB.Helper()
	v.Network = vpptest.NewNetwork(process)
	for name, ip := range map[string]string{"server": server, "friend": friend, "stranger": stranger} {
		v.Add(acl.InterfaceTag(pod(name)))
		v.Route(netip.MustParseAddr(ip), acl.InterfaceTag(pod(name)))
	}
}

// permits sends the first packet of a new TCP connection.
func (v *realVPP) permits(src, dst string, port uint16) bool {
	v.TB.Helper()
	v.port++
	f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: v.port, DstPort: port}
	return len(v.Send([]vpptest.Packet{vpptest.First(f, uint32(v.port))}).Left) == 1
}

// wantDemo fails the test if the demo's policy is not enforced.
func (v *realVPP) wantDemo(t *testing.T, when string) {
	t.Helper()
	if err := v.demoEnforced(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// demoEnforced reports every deviation from the demo's policy.
func (v *realVPP) demoEnforced() error {
	v.TB.Helper()
	switch {
	case !v.permits(friend, server, 80):
		return errors.New("the friend is kept out")
	case v.permits(stranger, server, 80):
		return errors.New("the stranger gets in")
	case !v.permits(friend, stranger, 80):
		return errors.New("a pod without a policy is blocked")
	}
	return nil
}

// rules returns what is installed: ACLs, and which interface has which.
func (v *realVPP) rules() string {
	v.TB.Helper()
	return v.CLI("show acl-plugin acl") + v.CLI("show acl-plugin interface")
}

// notReady waits until the agent is not ready for a reason, and its dataplane is not up. It returns
// how long that took.
func (p *process) notReady(reason string) time.Duration {
	p.t.Helper()
	began := time.Now()
	eventually(p.t, func() error {
		status, body, err := ask(p.socket, "/readyz")
		if err != nil || status != 503 || !strings.Contains(string(body), reason) {
			return fmt.Errorf("/readyz is %d %s %w, want 503 and %q", status, body, err, reason)
		}
		return nil
	})
	took := time.Since(began)
	eventually(p.t, func() error {
		if _, body, err := ask(p.socket, "/metrics"); err != nil || !strings.Contains(string(body), "\nsluice_dataplane_up 0\n") {
			return fmt.Errorf("sluice_dataplane_up is not 0: %w", err)
		}
		return nil
	})
	return took
}

// TestVPPIsBlockedFromStartOfAgent: VPP is fresh, and etcd is not there.
func TestVPPIsBlockedFromStartOfAgent(t *testing.T) {
	v, door, file := startRealVPP(t), newGate(t), filepath.Join(t.TempDir(), "state")
	run := func() *process {
		return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", door.addr, "--vpp-socket", v.Socket(), "--state-file", file)
	}
	a, began := run(), time.Now()
	a.notReady("blocked until it is: ")
	t.Logf("without a saved state: blocked %s after the start of the agent", time.Since(began))
	if v.permits(friend, stranger, 80) || v.permits(stranger, server, 80) || v.permits("192.0.2.9", server, 80) || v.permits(friend, "192.0.2.9", 80) {
		t.Error("pods are open before a state is known")
	}
	etcd := startEtcd(t)
	store(t, etcd, demo)
	door.open(etcd)
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	a.stop(syscall.SIGTERM)

	door.shut()
	v.Stop()
	v.Start()
	v.attach(v.Process)
	a, began = run(), time.Now()
	blocked := false
	eventually(t, func() error {
		open := v.permits(stranger, server, 80)
		if blocked = blocked || !open; blocked && open {
			t.Fatal("the stranger gets in before the saved state is in force")
		}
		return v.demoEnforced()
	})
	t.Logf("with a saved state: enforced %s after the start of the agent", time.Since(began))
	door.open(etcd)
	a.ready()
}

// TestVPPKeepsRulesWhileAgentStarts: no packet meets another verdict, and nothing is installed
// anew, before the store answers and after it did.
func TestVPPKeepsRulesWhileAgentStarts(t *testing.T) {
	v, etcd, door := startRealVPP(t), startEtcd(t), newGate(t)
	store(t, etcd, demo)
	door.open(etcd)
	a := runAgent(t, door.addr, v.Socket())
	a.ready()
	if err := v.demoEnforced(); err != nil { // the first packets make an interface
		t.Fatal(err)
	}
	before := v.rules()
	for _, away := range []bool{true, false} {
		a.Signal(syscall.SIGKILL)
		<-a.Ended
		if away {
			door.shut()
		}
		a = runAgent(t, door.addr, v.Socket())
		probes := 0
		eventually(t, func() error {
			if probes++; v.demoEnforced() != nil {
				t.Fatal(v.demoEnforced())
			}
			if out, _ := a.ctl("get", "status"); away && strings.Contains(out, "does not answer") {
				door.open(etcd)
			}
			return isReady(a.socket)
		})
		t.Logf("etcd away %t: %d times 3 packets were right", away, probes)
		if after := v.rules(); after != before {
			t.Errorf("etcd away %t: rules before\n%s\nand after\n%s", away, before, after)
		}
	}
}

// TestVPPThatIsGoneIsNotReady kills VPP, idle or during a pending request. It stays down for a
// while.
func TestVPPThatIsGoneIsNotReady(t *testing.T) {
	for _, pending := range []bool{false, true} {
		t.Run(fmt.Sprintf("a commit is pending %t", pending), func(t *testing.T) {
			v, etcd := startRealVPP(t), startEtcd(t)
			store(t, etcd, demo)
			a := runAgent(t, etcd, v.Socket())
			a.ready()
			if pending {
				v.Halt()
				store(t, etcd, strings.ReplaceAll(demo, "port: http", "port: 81"))
				t.Logf("it owes an answer, noticed after %s", a.notReady("the dataplane has not answered for "))
			}
			v.Kill()
			t.Logf("noticed after %s", a.notReady("renderer acl: "))
			t.Logf("nothing listens, noticed after %s", a.notReady("nothing listens on socket "))
			if pending && !strings.Contains(a.Output(), "the vswitch has closed the connection") {
				t.Error("the commit did not end with VPP")
			}
			v.Start()
			v.attach(v.Process)
			began := time.Now()
			a.ready()
			t.Logf("ready %s after another one was there", time.Since(began))
		})
	}
}

// TestVPPThatHangsIsNotReady stops VPP during a commit. Requests for status do not wait for
// that.
func TestVPPThatHangsIsNotReady(t *testing.T) {
	v, etcd := startRealVPP(t), startEtcd(t)
	store(t, etcd, demo)
	a := runAgent(t, etcd, v.Socket())
	a.ready()
	v.Halt()
	t.Logf("noticed after %s", a.notReady("the dataplane has not answered for "))
	store(t, etcd, strings.ReplaceAll(demo, "port: http", "port: 81"))
	for _, what := range []string{"status", "pods", "policies", "rules"} {
		began := time.Now()
		if out, code := a.ctl("get", what); code != 0 {
			t.Errorf("get %s: exit code %d\n%s", what, code, out)
		}
		t.Logf("get %s took %s", what, time.Since(began))
	}
	v.Resume()
	a.ready()
	eventually(t, func() error {
		if !v.permits(friend, server, 81) || v.permits(friend, server, 80) {
			return errors.New("the change is not enforced")
		}
		return nil
	})
}
