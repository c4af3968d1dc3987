package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/lab/etcd"
)

const day = 24 * time.Hour

// wallOf returns what a program that serves HTTP takes for the time.
func wallOf(network, address string) (time.Time, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://host/livez")
	if err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	return at, errors.Join(err, resp.Body.Close())
}

// TestFaultClocksJump sets the wall clocks of all programs forward and back by up to years,
// each by another amount. No program may lose a lease or leadership for that, report current state
// as stale, or keep a lease that its owner no longer renews.
func TestFaultClocksJump(t *testing.T) {
	faulty(t)
	s := startSite(t, etcd.Options{Members: 3})
	first := s.leader("--sweep-interval", "1s")
	second := s.replica("ksr-1", "--sweep-interval", "1s")
	second.says(200, "ok: stands by")
	s.node()
	resyncs := s.resyncs()

	type program struct {
		name, network, address string
		clock                  *wallClock
		by                     []time.Duration // one by one; what comes to TLS keeps to the time of certificates
	}
	programs := []program{
		{"ksr-0", "tcp", first.metrics, clockOf(t, first.Cmd.Process.Pid), []time.Duration{200 * day, -50 * time.Minute, 0}},
		{"ksr-1", "tcp", second.metrics, clockOf(t, second.Cmd.Process.Pid), []time.Duration{-50 * time.Minute, 90 * day, 0}},
		{"agent", "unix", s.agent.socket, clockOf(t, s.agent.Cmd.Process.Pid), []time.Duration{-3 * 365 * day, 10 * 365 * day, 0}},
	}
	for i, e := range s.members.Endpoints() {
		by := time.Duration(i+1) * 365 * day
		programs = append(programs, program{"etcd " + strconv.Itoa(i), "tcp", e, clockOf(t, s.members.PID(i)), []time.Duration{-by, by, 0}})
	}
	jumps := 0
	for step := range 3 {
		for _, p := range programs {
			p.clock.jump(p.by[step])
			at, err := wallOf(p.network, p.address)
			if off := time.Until(at) - p.by[step]; err != nil || off.Abs() > time.Minute {
				t.Fatalf("%s takes %v for the time, %v; it was set by %v", p.name, at, err, p.by[step])
			}
			jumps++
			s.grow(fmt.Sprintf("%s-%d", strings.ReplaceAll(p.name, " ", "-"), step), 10)
			s.converged()
		}
		s.sweepsPass(first, 3) // three times the life of the lease of the leader
	}
	steady(t, first, second)
	if now := s.resyncs(); now != resyncs {
		t.Errorf("the agent read the state again:\n%s\nbefore:\n%s", now, resyncs)
	}
	eventually(t, func() error { // what the agent publishes about itself is on a lease, too
		if out, code := s.agent.ctl("get", "nodes", "--policy", "demo/server"); code != 0 || !strings.Contains(out, "node-1") {
			return fmt.Errorf("get nodes: exit code %d:\n%s", code, out)
		}
		return nil
	})

	// Leases still end: with the clocks years apart, the leader dies.
	for _, p := range programs {
		p.clock.jump(p.by[0])
	}
	start := time.Now()
	_ = first.Cmd.Process.Signal(syscall.SIGKILL) // the only signal that ends it
	second.says(200, "ok: leads")
	t.Logf("%d jumps of %d clocks; after them the leader was killed, and the other one led after %v", jumps, len(programs), time.Since(start))
	s.grow("last", 10)
	t.Logf("converged after %v", s.converged())
	s.once()
	s.probes.check(t)
}

// sweepsPass waits for so many sweeps of a replica whose interval is a second.
func (s *site) sweepsPass(k *ksr, n int) {
	s.t.Helper()
	count := func() int {
		// There is no such line before the first one.
		done, _ := strconv.Atoi(strings.TrimSpace(k.lines(`sluice_ksr_sweeps_total{reason="timer"}`)))
		return done
	}
	until := count() + n
	eventually(s.t, func() error {
		if now := count(); now < until {
			return fmt.Errorf("%d of %d sweeps", now, until)
		}
		return nil
	})
}

// resyncs returns how often the agent has read the whole state, as it reports.
func (s *site) resyncs() string {
	s.t.Helper()
	_, body, err := ask(s.agent.socket, "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "sluice_resyncs_total") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	if out == nil {
		s.t.Fatal("the agent has no sluice_resyncs_total")
	}
	return strings.Join(out, "\n")
}

// steady fails the test unless the first replica has led all the time, and nothing went
// wrong between it and etcd.
func steady(t testing.TB, first, second *ksr) {
	t.Helper()
	for _, want := range []struct {
		k           *ksr
		name, value string
	}{
		{first, "sluice_ksr_leader", "1"},
		{first, "sluice_ksr_terms_total", "1"},
		{second, "sluice_ksr_terms_total", "0"},
		{first, "sluice_ksr_store_errors_total", "0"},
		{first, "sluice_ksr_drift_total", "0"},
	} {
		if got := want.k.metric(want.name); got != want.value {
			t.Errorf("%s is %s, want %s", want.name, got, want.value)
		}
	}
}
