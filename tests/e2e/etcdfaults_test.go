package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/tests/etcd"
)

func TestTheDeathOfTheLeaderLeavesNoGapAndNothingIsWrittenTwice(t *testing.T) {
	t.Parallel()
	s := startSite(t, etcd.Options{Members: 3})
	first := s.replica("ksr-0")
	first.says(200, "ok: leads")
	second := s.replica("ksr-1")
	second.says(200, "ok: stands by")
	s.node()

	const n = 200
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			if i == n/3 {
				_ = first.cmd.Process.Signal(syscall.SIGKILL) // nobody else ends it
			}
			if err := s.create(fmt.Sprintf("team-%d", i)); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Logf("after the last change it took %v", s.converged())
	second.says(200, "ok: leads")
	s.once()
	if drift := second.metric("sluice_ksr_drift_total"); drift != "0" {
		t.Errorf("%s objects had drifted", drift)
	}
	s.probes.check(t)
}

// TestALeaderThatWasPausedDoesNotWriteOn stops a leader for longer than its lease, and
// lets it go on with writes in hand.
func TestALeaderThatWasPausedDoesNotWriteOn(t *testing.T) {
	t.Parallel()
	s := startSite(t, etcd.Options{})
	first := s.replica("ksr-0")
	first.says(200, "ok: leads")
	second := s.replica("ksr-1")
	second.says(200, "ok: stands by")
	s.grow("before", 10)
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.grow("during", 10)
	second.says(200, "ok: leads")
	s.converged()
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.grow("after", 10)
	s.converged()
	first.says(200, "ok: stands by")
	s.once()
}

func TestFaultEachMemberOfEtcdDiesInTurn(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.replica("ksr-0", "--leader-ttl", "5s")
	k.says(200, "ok: leads")
	s.node()
	for i := range 3 {
		s.members.Kill(i)
		s.grow(fmt.Sprintf("down-%d", i), 30)
		t.Logf("member %d down: converged after %v", i, s.converged())
		s.members.Restart(i)
		s.grow(fmt.Sprintf("up-%d", i), 30)
		t.Logf("member %d up again: converged after %v", i, s.converged())
	}
	s.once()
	s.probes.check(t)
}

func TestFaultEtcdLosesItsQuorumAndRegainsIt(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.replica("ksr-0")
	k.says(200, "ok: leads")
	s.node()
	s.members.Kill(0)
	s.members.Kill(1)
	s.grow("without", 50)
	eventually(t, func() error {
		if got, body, err := k.get("/readyz"); err != nil || (got == 200 && strings.Contains(body, "leads")) {
			return fmt.Errorf("it says it leads: %s %w", body, err)
		}
		return nil
	})
	time.Sleep(3 * time.Second)
	s.members.Restart(0)
	s.members.Restart(1)
	t.Logf("converged after %v", s.converged())
	s.once()
	s.probes.check(t)
}

func TestFaultEtcdIsSetBackToOldDataOrEmptied(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.replica("ksr-0")
	k.says(200, "ok: leads")
	restore := s.members.Save()
	k.says(200, "ok: leads")
	s.node()
	s.grow("later", 50)
	s.converged()
	restore()
	t.Logf("set back: converged after %v", s.converged())
	s.members.Wipe()
	t.Logf("emptied: converged after %v", s.converged())
	s.grow("last", 10)
	s.converged()
	s.agent.ready()
	s.probes.check(t)
	t.Logf("sweeps:%s drift: %s", k.lines("sluice_ksr_sweeps_total"), k.metric("sluice_ksr_drift_total"))
}

// lines returns the lines of metrics that begin so.
func (k *ksr) lines(name string) (out string) {
	_, body, err := k.get("/metrics")
	if err != nil {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			out += " " + strings.TrimSpace(rest)
		}
	}
	return out
}

func TestFaultTheReplicaIsCutOffFromTheAPIServerOrFromEtcd(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	toAPI, toEtcd := newGate(t), newGate(t)
	toAPI.open(s.cluster.address)
	toEtcd.open(s.members.Endpoints()[0])
	first := startKSR(t, s.cluster.kubeconfig(toAPI.addr), "ksr-0", []string{toEtcd.addr}, "--api-silence", "2s")
	first.says(200, "ok: leads")
	second := s.replica("ksr-1")
	second.says(200, "ok: stands by")
	s.node()

	toAPI.flow.Lock() // neither end hears of it
	start := time.Now()
	second.says(200, "ok: leads")
	t.Logf("cut off from the API server without a word: the other leads after %v", time.Since(start))
	first.says(503, "the API server does not answer")
	s.grow("one", 20)
	s.converged()
	toAPI.flow.Unlock()
	first.says(200, "ok: stands by")

	if err := second.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	first.says(200, "ok: leads")
	if err := second.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	second.says(200, "ok: stands by")
	toEtcd.flow.Lock()
	start = time.Now()
	second.says(200, "ok: leads")
	t.Logf("cut off from etcd without a word: the other leads after %v", time.Since(start))
	s.grow("two", 20)
	s.converged()
	toEtcd.flow.Unlock()
	s.once()
	s.probes.check(t)
}

func TestFaultTheAPIServerDiesAndForgetsItsHistory(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	toAPI := newGate(t)
	toAPI.open(s.cluster.address)
	k := startKSR(t, s.cluster.kubeconfig(toAPI.addr), "ksr-0", s.members.Endpoints(), "--api-silence", "1m")
	k.says(200, "ok: leads")
	s.node()
	s.cluster.kill()
	time.Sleep(time.Second)
	s.cluster.startServer()
	s.grow("after", 20)
	t.Logf("after the death of the API server: converged after %v", s.converged())

	// While the replica is away, objects come and go, and the history is forgotten: its
	// watches are answered with 410 Gone.
	toAPI.shut()
	s.grow("away", 20)
	s.cluster.remove("Pod", "demo", "friend")
	if err := s.cluster.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.cluster.kill()
	s.cluster.startServer()
	toAPI.open(s.cluster.address)
	t.Logf("after 410 Gone: converged after %v", s.converged())
	s.once()
	if d := k.metric("sluice_ksr_drift_total"); d != "0" {
		t.Errorf("%s objects drifted", d)
	}
}

func TestFaultTheHistoryIsForgottenWhileTheAgentIsAway(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	k := s.replica("ksr-0")
	k.says(200, "ok: leads")
	door := newGate(t)
	door.open(s.members.Endpoints()[0])
	s.node(door.addr)
	door.shut()
	s.grow("away", 50)
	s.converged()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(t.Context(), "/", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.grow("later", 5)
	start := time.Now()
	door.open(s.members.Endpoints()[0])
	eventually(t, func() error {
		out, _ := s.agent.ctl("get", "status")
		if !strings.Contains(out, fmt.Sprintf("%d enforced", s.revision())) {
			return errors.New(out)
		}
		return nil
	})
	t.Logf("the agent caught up after %v", time.Since(start))
	s.probes.check(t)
}

func TestFaultTheDiskOfEtcdIsFull(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Quota: 4 << 20})
	k := s.replica("ksr-0")
	k.says(200, "ok: leads")
	s.node()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	for i := 0; err == nil; i++ {    // somebody else fills it
		_, err = c.Put(t.Context(), fmt.Sprint("/other/", i), strings.Repeat("x", 1<<18))
	}
	s.grow("full", 20)
	eventually(t, func() error {
		if _, body, err := k.get("/readyz"); err != nil || !strings.Contains(body, "etcd") {
			return fmt.Errorf("/readyz says %s %w", body, err)
		}
		return nil
	})
	s.cleanUp(c)
	start := time.Now()
	s.converged()
	t.Logf("once there was room: converged after %v", time.Since(start))
	k.says(200, "ok: leads")
	s.once()
	s.probes.check(t)
}

func TestFaultASlowReaderHoldsNobodyUp(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	k := s.replica("ksr-0")
	k.says(200, "ok: leads")
	s.node()
	slow := runAgent(t, s.members.Endpoints()[0], startVPP(t, filepath.Join(socketDir(t), "vpp.sock")).socket)
	slow.serves()
	if err := slow.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.grow("many", 500)
	t.Logf("with a reader that stands still: converged after %v", s.converged())
	want := fmt.Sprintf("%d enforced", s.revision())
	eventually(t, func() error {
		if out, _ := s.agent.ctl("get", "status"); !strings.Contains(out, want) {
			return errors.New(out)
		}
		return nil
	})
	start := time.Now()
	if err := slow.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if out, _ := slow.ctl("get", "status"); !strings.Contains(out, " seen") || !strings.Contains(out, fmt.Sprintf("%d seen", s.revision())) {
			return errors.New(out)
		}
		return nil
	})
	t.Logf("the slow one caught up after %v", time.Since(start))
	s.probes.check(t)
}
