package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestFaultAPIServerLosesHistory(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	toAPI := newGate(t)
	toAPI.open(s.cluster.address)
	k := startKSR(t, s.cluster.kubeconfig(toAPI.addr), "ksr-0", s.members.Endpoints(), "--api-silence", "1m")
	k.says(200, "ok: leads")
	s.node()
	s.cluster.kill()
	eventually(t, func() error { // it asks every 3 s
		if silence, err := strconv.ParseFloat(k.metric("sluice_ksr_api_silence_seconds"), 64); err != nil || silence < 4 {
			return fmt.Errorf("the API server is silent for %v s: %w", silence, err)
		}
		return nil
	})
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

// TestFaultBurstOfTenThousandPods makes them as fast as the API server takes them, while one
// of two agents is stopped.
func TestFaultBurstOfTenThousandPods(t *testing.T) {
	faulty(t)
	const n = 10_000
	s := &scale{site: startSite(t, etcd.Options{}), changes: map[string]*journey{}}
	k := s.leader()
	s.node()
	slow := s.halted()
	s.policies()
	start := time.Now()
	s.burst(scaleNodes*scaleLocal, scaleNodes*scaleLocal+n) // none is on the node
	made := time.Now()
	s.full(n + 3) // those of the demo
	t.Logf("%d pods were made in %v; etcd had all of them %v later", n, made.Sub(start), time.Since(made))
	s.reaches(s.agent, "enforced")
	t.Logf("enforced %v after the last one", time.Since(made))

	t.Logf("the agent that stood still has seen all %v after it went on", s.resumed(slow))
	for _, a := range []*process{s.agent, slow} {
		if out, _ := a.ctl("get", "status"); !strings.Contains(out, fmt.Sprintf("%d pods", n+3)) {
			t.Errorf("an agent does not know %d pods:\n%s", n+3, out)
		}
	}
	for key, times := range s.written(model.KindPod) {
		if times > 2 { // without its address, and with it
			t.Errorf("%s was written %d times", key, times)
		}
	}
	if wrong := k.metric("sluice_ksr_pending") + k.metric("sluice_ksr_drift_total") + k.metric("sluice_ksr_store_errors_total"); wrong != "000" {
		t.Errorf("pending, drifted, errors: %s", wrong)
	}
	t.Logf("sluice-ksr: %d MiB at most", programs.UsageOf(t, k.Cmd.Process.Pid).Peak>>20)
	s.probes.check(t)
}
