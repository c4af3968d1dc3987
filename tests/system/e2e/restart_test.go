package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/tests/lab/etcd"
)

func TestAgentRestartChangesNothingInVPP(t *testing.T) {
	t.Parallel()
	v, etcd, a := startDemo(t)
	v.permits(friend, server, 80) // counted by the rule that permits it
	a.stop(syscall.SIGINT)
	before := v.installed()
	if len(before.ACLs) == 0 {
		t.Fatal("nothing is installed")
	}

	// Before the agent knows what is to be enforced it leaves what it finds.
	door := newGate(t)
	a = runAgent(t, door.addr, v.socket)
	a.serves()
	if out, code := a.ctl("get", "status"); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if d := cmp.Diff(before, v.installed()); d != "" {
		t.Errorf("an agent without a state changed something (-before +after):\n%s", d)
	}
	door.open(etcd)
	a.ready()
	if d := cmp.Diff(before, v.installed()); d != "" {
		t.Errorf("the second start changed something (-before +after):\n%s", d)
	}
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
}

func TestAgentWithoutStoreEnforcesSavedState(t *testing.T) {
	t.Parallel()
	for name, user := range map[string][]string{"without a user": nil, "as a user": {"--etcd-user", "agent", "--etcd-password", "secret"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := etcd.Start(t, etcd.Options{})
			store(t, members.Endpoints()[0], demo)
			if user != nil {
				members.Users(t, "agent", "secret", "/sluice/")
			}
			startsWithoutItsStore(t, members.Endpoints()[0], user)
		})
	}
}

func startsWithoutItsStore(t *testing.T, etcd string, args []string) {
	t.Helper()
	socket, file := filepath.Join(socketDir(t), "vpp.sock"), filepath.Join(t.TempDir(), "state")
	v := startVPP(t, socket)
	v.attachDemo()
	door := newGate(t)
	door.open(etcd)
	run := func() *process {
		return startAgent(t, slices.Concat([]string{"run", "--node", "node-1", "--etcd-endpoints", door.addr, "--vpp-socket", socket, "--state-file", file}, args)...)
	}
	a := run()
	a.ready()
	a.stop(syscall.SIGTERM)

	// The machine starts again: VPP is empty, and etcd is not there.
	door.shut()
	v.stop()
	v = startVPP(t, socket)
	v.attachDemo()
	a = run()
	blocked := false
	eventually(t, func() error {
		if open := v.permits(stranger, server, 80); open && blocked {
			t.Fatal("the stranger gets in before the saved state is in force")
		} else if !open {
			blocked = true
		}
		return v.demoEnforced()
	})
	eventually(t, func() error {
		if out, code := a.ctl("get", "status"); code != 0 || !strings.Contains(out, "is enforced, as it was saved: ") {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
	before := v.installed()
	door.open(etcd)
	eventually(t, func() error {
		if out, _ := a.ctl("get", "status"); !strings.Contains(out, "followed, heard ") {
			return errors.New(out)
		}
		return nil
	})
	a.ready()
	if d := cmp.Diff(before, v.installed()); d != "" {
		t.Errorf("the store had nothing new, and something changed (-before +after):\n%s", d)
	}
	a.stop(syscall.SIGTERM)
}

// TestAgentKeepsRulesUntilStoreAnswers: what was saved is older than what VPP
// enforces, and would open what was closed since.
func TestAgentKeepsRulesUntilStoreAnswers(t *testing.T) {
	t.Parallel()
	v, file := startVPP(t, filepath.Join(socketDir(t), "vpp.sock")), filepath.Join(t.TempDir(), "state")
	v.attachDemo()
	etcd, door := startEtcd(t), newGate(t)
	door.open(etcd)
	run := func(file string) *process {
		return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", door.addr, "--vpp-socket", v.socket, "--state-file", file)
	}
	for i, manifests := range []string{strings.ReplaceAll(demo, "port: http", "port: 81"), demo} {
		store(t, etcd, manifests)
		a := run([]string{file, ""}[i]) // the last one saves nothing, as one that is killed
		a.ready()
		a.stop(syscall.SIGTERM)
	}
	before := v.installed()
	door.shut()
	a := run(file)
	eventually(t, func() error {
		if out, _ := a.ctl("get", "status"); !strings.Contains(out, "does not answer") {
			return errors.New(out)
		}
		return nil
	})
	if d := cmp.Diff(before, v.installed()); d != "" || strings.Contains(a.Output(), "saved state is in force") {
		t.Errorf("the saved state is in force (-before +after):\n%s", d)
	}
	const late = "10.2.0.4"
	v.attach(pod("late"), late)
	eventually(t, func() error {
		if v.permits(friend, late, 80) || v.permits(late, friend, 80) {
			return errors.New("a pod that nobody knows is open")
		}
		return v.demoEnforced()
	})
	door.open(etcd)
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
}

// TestAgentBlocksPodsUntilStoreAnswers: pods with a policy and pods without one.
func TestAgentBlocksPodsUntilStoreAnswers(t *testing.T) {
	t.Parallel()
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	door := newGate(t)
	a := runAgent(t, door.addr, v.socket)
	eventually(t, func() error {
		status, body, err := ask(a.socket, "/readyz")
		if want := "first state is not enforced yet; blocked until it is: "; err != nil || status != 503 || !strings.Contains(string(body), want) {
			return fmt.Errorf("/readyz is %d %s %w, want 503 and %q", status, body, err, want)
		}
		return nil
	})
	if v.permits(friend, stranger, 80) || v.permits(stranger, server, 80) {
		t.Error("pods are open before the first state is known")
	}
	if out, code := a.ctl("get", "status"); code != 0 || !strings.Contains(out, "; 3 interfaces of unknown pods blocked: ") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := a.ctl("get", "pods"); code != 0 || out != "no pods\n" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	etcd := startEtcd(t)
	store(t, etcd, demo)
	door.open(etcd)
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	if !v.permits(friend, stranger, 80) {
		t.Error("a pod without a policy is still blocked")
	}
	a.stop(syscall.SIGTERM)
}

func TestAgentStopsWhileItWaits(t *testing.T) {
	t.Parallel()
	a := runAgent(t, newGate(t).addr, filepath.Join(socketDir(t), "nobody.sock"))
	a.serves()
	a.stop(syscall.SIGTERM)
}

func TestAgentRepairsRestartedVPP(t *testing.T) {
	t.Parallel()
	v, _, a := startDemo(t)

	v.sw.Restart() // forgets every ACL, keeps interfaces
	if v.demoEnforced() == nil {
		t.Fatal("the restart forgot nothing")
	}
	eventually(t, v.demoEnforced)

	// Another process behind the same socket, whose pods are attached later.
	v.stop()
	v = startVPP(t, v.socket)
	v.attachDemo()
	eventually(t, v.demoEnforced)
	a.ready()
	if out, _ := a.ctl("get", "status"); !strings.Contains(out, "in sync") || strings.Contains(out, "not in sync") {
		t.Errorf("status after the repair:\n%s", out)
	}
	a.stop(syscall.SIGINT)
}
