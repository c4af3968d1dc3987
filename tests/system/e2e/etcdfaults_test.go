package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/tests/lab/etcd"
)

func TestFaultMembersOfEtcdDieInTurn(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	s.leader("--leader-ttl", "5s")
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

func TestFaultEtcdLosesQuorum(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.leader()
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
	eventually(t, func() error {
		if out, _ := s.agent.ctl("get", "status"); !strings.Contains(out, "not followed for ") {
			return errors.New(out)
		}
		return nil
	})
	s.members.Restart(0)
	s.members.Restart(1)
	t.Logf("converged after %v", s.converged())
	s.once()
	s.probes.check(t)
}

func TestFaultEtcdIsSetBackOrEmptied(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.leader()
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

func TestFaultEtcdIsCompactedWhileAgentIsDown(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	s.leader()
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
	s.reaches(s.agent, "enforced")
	t.Logf("the agent caught up after %v", time.Since(start))
	s.probes.check(t)
}

// TestFaultEtcdIsCompactedDuringChanges has the history forgotten and every member give
// back room, over and over, and the store compared with the cluster meanwhile.
func TestFaultEtcdIsCompactedDuringChanges(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	k := s.replica("ksr-0", "--sweep-interval", "1s")
	k.says(200, "ok: leads")
	s.node()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	grown := make(chan error, 1)
	go func() {
		for i := range 300 {
			if err := s.create(fmt.Sprintf("tidied-%d", i)); err != nil {
				grown <- err
				return
			}
		}
		grown <- nil
	}()
	rounds := 0
	for running := true; running || rounds < 6; rounds++ {
		if err := tidy(t.Context(), c, s.members.Endpoints()[rounds%3]); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-grown:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
	}
	t.Logf("tidied %d times: converged after %v", rounds, s.converged())
	s.reaches(s.agent, "enforced")
	k.says(200, "ok: leads")
	if terms, drift := k.metric("sluice_ksr_terms_total"), k.metric("sluice_ksr_drift_total"); terms != "1" || drift != "0" {
		t.Errorf("it led %s times, and %s objects had drifted", terms, drift)
	}
	s.once()
	s.probes.check(t)
	t.Logf("sweeps:%s", k.lines("sluice_ksr_sweeps_total"))
}

func TestFaultDiskOfEtcdIsFull(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Quota: 4 << 20})
	k := s.leader()
	s.node()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	for i := 0; err == nil; i++ {    // another process fills it
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

func TestFaultSlowReaderDelaysNoOther(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{})
	s.leader()
	s.node()
	slow := s.halted()
	s.grow("many", 500)
	t.Logf("with a reader that stands still: converged after %v", s.converged())
	s.reaches(s.agent, "enforced")
	t.Logf("the slow one caught up after %v", s.resumed(slow))
	s.probes.check(t)
}
