package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// scaleEnv is the size of TestScale: "pods=10000 agents=1000 rate=100 seconds=20", and with
// "disk=0" that etcd does not wait for a disk.
const scaleEnv = "SLUICE_SCALE"

// scale is a cluster that is measured from its API server to the tables of nodes.
type scale struct {
	*site
	pods, agents, rate, seconds, disk int

	events atomic.Int64 // that agents received
	others int          // process of the agents; 0 before they run

	mu      sync.Mutex
	changes map[string]*journey // by "namespace/name" of the pod
	heard   []time.Duration     // until a sample of agents had received a change
}

func scaleOf(t *testing.T) *scale {
	t.Helper()
	text := os.Getenv(scaleEnv)
	if text == "" {
		t.Skipf("%s is not set: \"make scale\" sets it", scaleEnv)
	}
	s := &scale{changes: map[string]*journey{}, disk: 1}
	numbers := map[string]*int{"pods": &s.pods, "agents": &s.agents, "rate": &s.rate, "seconds": &s.seconds, "disk": &s.disk}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil || numbers[name] == nil {
			t.Fatalf("%s: %q is not understood", scaleEnv, word)
		}
		*numbers[name] = n
	}
	return s
}

// scaleCalm is how long changes come one by one: a hundredth of them should be some.
const scaleCalm = time.Minute

// phase runs load and prints what was measured meanwhile. It begins when nothing is
// under way.
func (s *scale) phase(name string, k *ksr, load func()) {
	s.t.Helper()
	s.forget()
	before := s.events.Load()
	all := map[string]int{"etcd": s.members.PID(0), "sluice-ksr": k.Cmd.Process.Pid, "API server": s.cluster.process.Process.Pid, "nodes and load": os.Getpid()}
	if s.others != 0 {
		all["agents"] = s.others
	}
	used := map[string]programs.Usage{}
	for who, pid := range all {
		used[who] = programs.UsageOf(s.t, pid)
	}
	waits, syncs := waitsOf(s.t), s.syncs()
	start := time.Now()
	load()
	s.arrived()
	took := time.Since(start)
	s.t.Logf("%s: %s", name, waitsOf(s.t).since(waits, took))
	s.t.Logf("%s: %s", name, s.syncs().since(syncs))
	s.t.Logf("%s: %s (%d events to %d agents)", name, s.report(), s.events.Load()-before, s.agents)
	for who, pid := range all {
		u := programs.UsageOf(s.t, pid)
		s.t.Logf("%s: %s: %.2f cores, %d MiB", name, who, (u.CPU-used[who].CPU).Seconds()/took.Seconds(), u.RSS>>20)
	}
}

// settled reports whether a node enforces a state.
func settled(st policy.Status) error {
	if st.Revision == 0 || !st.InSync() {
		return fmt.Errorf("the node is at revision %d, in sync: %v", st.Revision, st.InSync())
	}
	return nil
}

func TestScale(t *testing.T) {
	s := scaleOf(t)
	memory := inMemory(t) // for what would share the disk with the etcd that is measured
	s.site = &site{t: t, cluster: startClusterAt(t, filepath.Join(memory, "cluster"))}
	s.cluster.grant()
	options := etcd.Options{Sync: true}
	if s.disk == 0 {
		options.Dir = memory
	}
	s.members = etcd.Start(t, options)
	s.state = reader(t, s.members.Endpoints())
	t.Logf("%d pods, %d agents, %d cores", s.pods, s.agents, runtime.NumCPU())
	k := s.replica("ksr-0", "--sweep-interval", "5s", "--leader-ttl", "5s")
	k.says(200, "ok: leads")
	s.policies()
	s.machines()
	empty := k.live()

	start := time.Now()
	s.burst(0, s.pods)
	made := time.Since(start)
	s.full(s.pods)
	t.Logf("burst: %d pods made in %v, all in etcd %v later", s.pods, made.Round(time.Millisecond), (time.Since(start) - made).Round(time.Millisecond))

	writes := k.metric(`sluice_ksr_writes_total{op="put"}`)
	s.sweepsPass(k, 2)
	if after := k.metric(`sluice_ksr_writes_total{op="put"}`); after != writes {
		t.Errorf("a steady cluster made %s writes of %s", after, writes)
	}
	t.Logf("steady: %s writes before and after 2 sweeps; %s heartbeats of nodes and others changed nothing", writes, k.metric("sluice_ksr_unchanged_total"))
	t.Logf("sluice-ksr: %.0f bytes of heap per pod (%.1f MiB live, %.1f MiB when empty)", (k.live()-empty)/float64(s.pods), k.live()/(1<<20), empty/(1<<20))

	s.watchAPI()
	s.watchEtcd()
	for i := range scaleNodes {
		s.wholeNode(i)
	}
	s.phase("5 changes/s, no other agents", k, func() { s.churn(5, scaleCalm, s.pods) })
	s.lightAgents()
	s.phase(fmt.Sprintf("5 changes/s, %d agents", s.agents), k, func() { s.churn(5, scaleCalm, s.pods+1000) })
	s.phase(fmt.Sprintf("%d pods/s, %d agents", s.rate, s.agents), k, func() { s.churn(s.rate, time.Duration(s.seconds)*time.Second, s.pods+2000) })
}
