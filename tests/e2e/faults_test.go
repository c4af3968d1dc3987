package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore"
	"github.com/sluice-net/sluice/tests/etcd"
)

// site is a whole installation: an API server, an etcd, sluice-ksr and the agent of a
// node with a vswitch, whose packets are watched.
type site struct {
	t       testing.TB
	cluster *cluster
	members *etcd.Cluster
	state   *kvstore.Client
	vpp     *vpp
	agent   *process
	probes  *probes
}

// startSite starts a site with the demo, without a sluice-ksr.
func startSite(t testing.TB, o etcd.Options) *site {
	t.Helper()
	s := &site{t: t, cluster: startCluster(t)}
	s.cluster.grant()
	s.cluster.apply(demo)
	s.members = etcd.Start(t, o)
	s.state = reader(t, s.members.Endpoints())
	return s
}

// replica starts a sluice-ksr.
func (s *site) replica(name string, args ...string) *ksr {
	s.t.Helper()
	return startKSR(s.t, s.cluster.kubeconfig(s.cluster.address), name, s.members.Endpoints(), args...)
}

// node starts the agent, and the watching of packets once the demo is enforced.
func (s *site) node(endpoints ...string) {
	s.t.Helper()
	if len(endpoints) == 0 {
		endpoints = s.members.Endpoints()
	}
	s.vpp = startVPP(s.t, filepath.Join(socketDir(s.t), "vpp.sock"))
	s.vpp.plumbDemo()
	s.agent = runAgent(s.t, strings.Join(endpoints, ","), s.vpp.socket)
	s.agent.ready()
	eventually(s.t, s.vpp.demoEnforced)
	s.probes = watchPackets(s.t, s.vpp)
}

// probes counts packets that must never pass, and those that must always.
type probes struct {
	sent, opened, dropped atomic.Int64
	end                   func()
}

func watchPackets(t testing.TB, v *vpp) *probes {
	p := &probes{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if v.permits(stranger, server, 80) {
				p.opened.Add(1)
			}
			if !v.permits(friend, server, 80) {
				p.dropped.Add(1)
			}
			p.sent.Add(2)
			time.Sleep(time.Millisecond)
		}
	})
	p.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.end)
	return p
}

// check says what was counted, and fails the test for what must not be.
func (p *probes) check(t testing.TB) {
	t.Helper()
	p.end()
	t.Logf("packets: %d sent, %d passed that must not, %d were dropped that must not", p.sent.Load(), p.opened.Load(), p.dropped.Load())
	if p.opened.Load()+p.dropped.Load() > 0 {
		t.Error("the policy was not held throughout")
	}
}

// grow creates namespaces, each by one write.
func (s *site) grow(prefix string, n int) {
	s.t.Helper()
	for i := range n {
		if err := s.create(fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) create(name string) error {
	_, err := s.cluster.of("Namespace", "").Create(s.t.Context(), object("v1", "Namespace", "", name), metav1.CreateOptions{})
	return err
}

// converged waits until etcd holds the namespaces that the API server has, and says
// how long that took.
func (s *site) converged() time.Duration {
	s.t.Helper()
	start := time.Now()
	list, err := s.cluster.of("Namespace", "").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var want []string
	for _, o := range list.Items {
		want = append(want, o.GetName())
	}
	holds(s.t, s.state, model.KindNamespace, want...)
	return time.Since(start)
}

// written returns how often each namespace was written since it was made.
func (s *site) written() map[string]int64 {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints(), DialTimeout: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	resp, err := c.Get(s.t.Context(), model.Root(model.DefaultPrefix)+string(model.KindNamespace)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = kv.Version
	}
	return out
}

// once fails the test for namespaces that were written more than once.
func (s *site) once() {
	s.t.Helper()
	twice := 0
	keys := s.written()
	for key, n := range keys {
		if n != 1 {
			twice++
			s.t.Errorf("%s was written %d times", key, n)
		}
	}
	s.t.Logf("%d objects, %d written more than once", len(keys), twice)
}

// faulty skips the long tests of faults where nobody asked for them.
func faulty(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_FAULTS") == "" {
		t.Skip("SLUICE_FAULTS is not set: \"make e2e-faults\" sets it")
	}
}

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

// revision is the newest revision that changed the state.
func (s *site) revision() (newest int64) {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	resp, err := c.Get(s.t.Context(), model.Root(model.DefaultPrefix), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		newest = max(newest, kv.ModRevision)
	}
	return newest
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

// cleanUp makes room in the only member, as an administrator does.
func (s *site) cleanUp(c *clientv3.Client) {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := c.Delete(ctx, "/other/", clientv3.WithPrefix()); err != nil {
		s.t.Fatal(err)
	}
	resp, err := c.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	_, errCompact := c.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	_, errDefrag := c.Defragment(ctx, s.members.Endpoints()[0])
	_, errDisarm := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err := errors.Join(errCompact, errDefrag, errDisarm); err != nil {
		s.t.Fatal(err)
	}
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
