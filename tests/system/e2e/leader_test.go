package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/lab/etcd"
)

func TestLeaderDeathLeavesNoGap(t *testing.T) {
	t.Parallel()
	s := startSite(t, etcd.Options{Members: 3})
	first := s.leader()
	second := s.replica("ksr-1")
	second.says(200, "ok: stands by")
	s.node()

	const n = 200
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			if i == n/3 {
				_ = first.Cmd.Process.Signal(syscall.SIGKILL) // the only signal that ends it
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

// TestLeaderPausedStopsWriting stops a leader for longer than its lease, and continues it
// with pending writes.
func TestLeaderPausedStopsWriting(t *testing.T) {
	t.Parallel()
	s := startSite(t, etcd.Options{})
	first := s.leader()
	second := s.replica("ksr-1")
	second.says(200, "ok: stands by")
	s.grow("before", 10)
	first.halt()
	s.grow("during", 10)
	second.says(200, "ok: leads")
	s.converged()
	first.resume()
	s.grow("after", 10)
	s.converged()
	first.says(200, "ok: stands by")
	s.once()
}

func TestFaultReplicaIsCutOff(t *testing.T) {
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

	toAPI.flow.Lock() // neither end notices it
	start := time.Now()
	second.says(200, "ok: leads")
	t.Logf("cut off from the API server without a word: the other leads after %v", time.Since(start))
	first.says(503, "the API server does not answer")
	s.grow("one", 20)
	s.converged()
	toAPI.flow.Unlock()
	first.says(200, "ok: stands by")

	second.halt()
	first.says(200, "ok: leads")
	second.resume()
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
