package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
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

// leader starts the first sluice-ksr, and waits until it leads.
func (s *site) leader(args ...string) *ksr {
	s.t.Helper()
	k := s.replica("ksr-0", args...)
	k.says(200, "ok: leads")
	return k
}

// node starts the agent, and the watching of packets once the demo is enforced.
func (s *site) node(endpoints ...string) {
	s.t.Helper()
	if len(endpoints) == 0 {
		endpoints = s.members.Endpoints()
	}
	s.vpp = startVPP(s.t, filepath.Join(socketDir(s.t), "vpp.sock"))
	s.vpp.attachDemo()
	s.agent = runAgent(s.t, strings.Join(endpoints, ","), s.vpp.socket)
	s.agent.ready()
	eventually(s.t, s.vpp.demoEnforced)
	s.probes = watchPackets(s.t, s.vpp)
}

// halted returns the agent of another vswitch, which has seen everything and is stopped.
func (s *site) halted() *process {
	s.t.Helper()
	slow := runAgent(s.t, s.members.Endpoints()[0], startVPP(s.t, filepath.Join(socketDir(s.t), "vpp.sock")).socket)
	s.reaches(slow, "seen")
	slow.halt()
	return slow
}

// resumed continues a stopped agent, and returns how long it takes to see everything.
func (s *site) resumed(slow *process) time.Duration {
	s.t.Helper()
	start := time.Now()
	slow.resume()
	s.reaches(slow, "seen")
	return time.Since(start)
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
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for ; ctx.Err() == nil; <-pace.C {
			if v.permits(stranger, server, 80) {
				p.opened.Add(1)
			}
			if !v.permits(friend, server, 80) {
				p.dropped.Add(1)
			}
			p.sent.Add(2)
		}
	})
	p.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.end)
	return p
}

// check logs the counts, and fails the test for those that must be zero.
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
	_, err := s.cluster.of("Namespace", "").Create(s.t.Context(), object("Namespace", "", name), metav1.CreateOptions{})
	return err
}

// converged waits until etcd holds the namespaces that the API server has, and logs how long that
// took.
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

// written returns how often each object of a kind was written since it was made.
func (s *site) written(kind model.Kind) map[string]int64 {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members.Endpoints(), DialTimeout: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is pending
	resp, err := c.Get(s.t.Context(), model.Root(model.DefaultPrefix)+string(kind)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
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
	keys := s.written(model.KindNamespace)
	for key, n := range keys {
		if n != 1 {
			twice++
			s.t.Errorf("%s was written %d times", key, n)
		}
	}
	s.t.Logf("%d objects, %d written more than once", len(keys), twice)
}

// faulty skips the long tests of faults unless they were requested.
func faulty(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_FAULTS") == "" {
		t.Skip("SLUICE_FAULTS is not set: \"make e2e-faults\" sets it")
	}
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

// reaches waits until an agent says that it has "enforced" or "seen" the newest state. The revision
// that it reports may be higher: it is that of all of etcd.
func (s *site) reaches(agent *process, what string) {
	s.t.Helper()
	number := regexp.MustCompile(`(\d+) ` + what)
	want := s.revision()
	eventually(s.t, func() error {
		out, _ := agent.ctl("get", "status")
		m := number.FindStringSubmatch(out)
		if m == nil {
			return errors.New(out)
		}
		if got, _ := strconv.ParseInt(m[1], 10, 64); got < want { // it is a number
			return fmt.Errorf("revision %d is not %s:\n%s", want, what, out)
		}
		return nil
	})
}

// cleanUp makes room in the only member, as an administrator does.
func (s *site) cleanUp(c *clientv3.Client) {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := c.Delete(ctx, "/other/", clientv3.WithPrefix()); err != nil {
		s.t.Fatal(err)
	}
	errTidy := tidy(ctx, c, s.members.Endpoints()[0])
	_, errDisarm := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err := errors.Join(errTidy, errDisarm); err != nil {
		s.t.Fatal(err)
	}
}

// tidy compacts the store's history and defragments a member.
func tidy(ctx context.Context, c *clientv3.Client, member string) error {
	resp, err := c.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = c.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // it has none since the last time
		return err
	}
	_, err = c.Defragment(ctx, member)
	return err
}
