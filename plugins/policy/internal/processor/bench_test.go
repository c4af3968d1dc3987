package processor_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

// counter is a sink that only counts, so that benchmarks measure the layers above.
type counter struct{ sets, members, pods, lists int }

func (c *counter) UpdateSet(_ api.SetID, added, removed []netip.Prefix) {
	c.sets++
	c.members += len(added) - len(removed)
}

func (c *counter) Configure(_ api.PodID, _ []netip.Addr, list []*api.ContivPolicy, _ []api.Sharing) {
	c.pods++
	c.lists += len(list)
}

func (c *counter) Remove(api.PodID) { c.pods-- }

type rooms struct {
	cache *cache.Cache
	proc  *processor.Processor
	sink  counter
}

func newRooms(node string) *rooms {
	c := cache.New()
	return &rooms{cache: c, proc: processor.New(c, processor.Options{Node: node})}
}

func (r *rooms) update(ch model.Changes) {
	r.cache.Update(ch, r.proc)
	r.proc.Flush(&r.sink)
}

func deltas(tb testing.TB, ms ...proto.Message) (ds []model.Delta) {
	for _, m := range ms {
		ds = append(ds, model.Delta{ID: mustID(tb, m), Value: m})
	}
	return ds
}

// cpuTime returns the CPU time of the process: on a shared machine it is more reliable than elapsed
// time, and it includes the garbage collector.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var shapes = []struct{ pods, policies, local int }{{1000, 1000, 100}, {10000, 5000, 110}}

func (s shape) String() string {
	return fmt.Sprintf("%dpods-%dpolicies-%dlocal", s.pods, s.policies, s.local)
}

type shape struct{ pods, policies, local int }

// eachShape runs a benchmark on a cluster that is already known.
func eachShape(b *testing.B, f func(b *testing.B, r *rooms, s shape)) {
	for _, s := range shapes {
		s := shape(s)
		b.Run(s.String(), func(b *testing.B) {
			r := newRooms("n0")
			r.update(model.Changes{Resync: true, Deltas: deltas(b, synthetic(s.pods, s.policies, s.local)...)})
			b.ReportAllocs()
			f(b, r, s)
		})
	}
}

func BenchmarkResync(b *testing.B) {
	for _, s := range shapes {
		s := shape(s)
		ch := model.Changes{Resync: true, Deltas: deltas(b, synthetic(s.pods, s.policies, s.local)...)}
		b.Run("first/"+s.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newRooms("n0").update(ch)
			}
		})
		b.Run("equal/"+s.String(), func(b *testing.B) {
			r := newRooms("n0")
			r.update(ch)
			b.ReportAllocs()
			for b.Loop() {
				r.update(ch)
			}
		})
	}
}

func podAddDelete(b *testing.B, r *rooms, p *model.Pod) {
	add := model.Changes{Deltas: deltas(b, p)}
	del := model.Changes{Deltas: []model.Delta{{ID: add.Deltas[0].ID}}}
	for b.Loop() {
		r.update(add)
		r.update(del)
	}
}

// BenchmarkRemotePodAddDelete measures two events per iteration.
func BenchmarkRemotePodAddDelete(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, s shape) {
		p := syntheticPod(0, s.local) // in the namespace of local pods: several sets change
		p.Name, p.NodeName, p.Ips = "extra", "n7", []string{"10.9.9.9"}
		podAddDelete(b, r, p)
	})
}

// BenchmarkLocalPodAddDelete measures two events per iteration.
func BenchmarkLocalPodAddDelete(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, s shape) {
		p := syntheticPod(0, s.local)
		p.Name, p.Ips = "extra", []string{"10.9.9.9"}
		podAddDelete(b, r, p)
	})
}

// BenchmarkFindings measures the queries of a snapshot that are not answered by events.
func BenchmarkFindings(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, _ shape) {
		r.update(model.Changes{Deltas: deltas(b, egress("ns0/named", sel(), rule(peers(namespaces()), "tcp/nosuch", "udp/nosuch")))})
		for b.Loop() {
			if f := r.proc.Findings(); len(f.Problems) != 2 {
				b.Fatal(f.Problems)
			}
		}
	})
}

func BenchmarkPolicyUpdate(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, _ shape) {
		var ch [2]model.Changes
		for i := range ch {
			ch[i].Deltas = deltas(b, ingress("ns0/p0", sel("app=a0"), rule(peers(pods("role=r0")), "tcp/"+strconv.Itoa(80+i))))
		}
		i := 0
		for b.Loop() {
			r.update(ch[i%2])
			i++
		}
	})
}

// BenchmarkNamespaceRelabel toggles a label by which 500 selectors select the 100 pods of another
// namespace.
func BenchmarkNamespaceRelabel(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, _ shape) {
		var ms []proto.Message
		for i := range 500 {
			peer := both(sel("w=target"), sel(fmt.Sprintf("app:a%d|u%d", i%10, i)))
			ms = append(ms, ingress(fmt.Sprintf("ns0/w%d", i), sel(fmt.Sprintf("app=a%d", i%10)), rule(peers(peer), "tcp")))
		}
		r.update(model.Changes{Deltas: deltas(b, ms...)})
		ch := [2]model.Changes{{Deltas: deltas(b, ns("ns5", "w=target"))}, {Deltas: deltas(b, ns("ns5", ""))}}
		i, before := 0, r.sink.members
		for b.Loop() {
			r.update(ch[i%2])
			if i == 0 && r.sink.members-before != 5000 {
				b.Fatalf("%d members joined, want 5000", r.sink.members-before)
			}
			i++
		}
	})
}

// BenchmarkBroadPolicyAddDelete measures adding and deleting a policy whose peers are half of the
// pods of the cluster, by a selector without other users.
func BenchmarkBroadPolicyAddDelete(b *testing.B) {
	eachShape(b, func(b *testing.B, r *rooms, s shape) {
		p := ingress("ns0/broad", sel("app=a0"), rule(peers(both(sel(), sel("role:r0|r1|unique"))), "tcp/80"))
		add := model.Changes{Deltas: deltas(b, p)}
		del := model.Changes{Deltas: []model.Delta{{ID: add.Deltas[0].ID}}}
		for b.Loop() {
			before := r.sink.members
			r.update(add)
			if n := r.sink.members - before; n != s.pods*2/5 {
				b.Fatalf("%d members", n)
			}
			r.update(del)
		}
	})
}

// BenchmarkWorkloadInit measures the first resync of a workload: one node's view,
// its output checked against the ground truth by TestWorkloadGroundTruth.
func BenchmarkWorkloadInit(b *testing.B) {
	before := liveHeap()
	ch := readState(b, workloadDir(b))
	input := liveHeap() - before
	var r *rooms
	start := cpuTime()
	for b.Loop() {
		r = newRooms("node-0000")
		r.update(ch)
	}
	b.ReportMetric(float64((cpuTime()-start).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
	full := liveHeap()
	clear(ch.Deltas)
	ch.Deltas = nil
	alone := liveHeap()
	b.ReportMetric(float64(alone-before)/(1<<20), "MiB-live")
	b.ReportMetric(float64(full-before-input)/(1<<20), "MiB-above-input")
	b.ReportMetric(float64(r.sink.members), "members")
	b.ReportMetric(float64(r.sink.sets), "sets")
	runtime.KeepAlive(r)
}

// BenchmarkWorkloadEvents measures the events of a workload one by one; an
// iteration is the whole sequence.
func BenchmarkWorkloadEvents(b *testing.B) {
	dir := workloadDir(b)
	events := readEvents(b, dir)
	if len(events) == 0 {
		b.Skip("no events")
	}
	state := readState(b, dir)
	byTag := map[string][]time.Duration{}
	for b.Loop() {
		b.StopTimer()
		r := newRooms("node-0000")
		r.update(state)
		runtime.GC()
		b.StartTimer()
		for _, e := range events {
			start := time.Now()
			r.update(model.Changes{Deltas: []model.Delta{e.delta}})
			d := time.Since(start)
			byTag["all"] = append(byTag["all"], d)
			byTag[e.tag] = append(byTag[e.tag], d)
		}
	}
	for tag, ds := range byTag {
		slices.Sort(ds)
		var sum time.Duration
		for _, d := range ds {
			sum += d
		}
		b.Logf("%-20s n=%-6d mean=%-10v p50=%-10v p99=%-10v max=%v", tag, len(ds), sum/time.Duration(len(ds)), ds[len(ds)/2], ds[len(ds)*99/100], ds[len(ds)-1])
	}
}

// TestWorkloadGroundTruth compares the whole cluster with the counts that the
// generator of the workload made by itself.
func TestWorkloadGroundTruth(t *testing.T) {
	dir := workloadDir(t)
	stats := readStats(t, dir)
	r := newRooms("")
	r.update(readState(t, dir))
	if r.sink.pods != stats.Pods || r.sink.lists != stats.AppliedPairs {
		t.Errorf("%d pods with %d policies, want %d with %d", r.sink.pods, r.sink.lists, stats.Pods, stats.AppliedPairs)
	}
	members, largest := 0, 0
	for _, s := range r.proc.Sets()[1:] {
		members += len(s.Members)
		largest = max(largest, len(s.Members))
	}
	t.Logf("%d sets, %d members, largest %d (of all peers, used or not: %d, %d, %d)", len(r.proc.Sets())-1, members, largest, stats.UniquePeerSel, stats.PeerPairsUnique, stats.MaxPeerSet)
	if members > stats.PeerPairsUnique || largest > stats.MaxPeerSet {
		t.Errorf("more members than there are pairs")
	}
}
