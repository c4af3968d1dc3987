package bench

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// watchers are the numbers of watches of the state with which BenchmarkStoreLoad writes events.
var watchers = []int{1, 50, 200}

// writtenAgain is how many pods are written with each number.
const writtenAgain = 2000

// BenchmarkStoreLoad measures the state of a workload in etcd: objects, bytes, a list of it, and
// what an event costs by the number of watches, whose both ends are in this process. Then it counts
// what one node needs of it.
func BenchmarkStoreLoad(b *testing.B) {
	for _, w := range workloads(b) {
		b.Run(w.String(), func(b *testing.B) {
			in := w.resync(b)
			for range b.N {
				storeLoad(b, in)
				nodeNeeds(b, in)
			}
		})
	}
}

// dialStore returns a client that ends with the benchmark.
func dialStore(b *testing.B, endpoints ...string) *kvstore.Client {
	c, err := kvstore.Dial(b.Context(), kvstore.Config{Endpoints: endpoints}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func storeLoad(b *testing.B, in model.Changes) {
	dir, before := b.TempDir(), liveHeap()
	server := inprocess.Start(b, embedded.Config{Dir: dir, ClientURL: inprocess.Loopback})
	dial := func() *kvstore.Client { return dialStore(b, server.Endpoints()...) }
	client := dial()
	start := cpuTime()
	write(b, client, in)
	b.ReportMetric((cpuTime() - start).Seconds(), "write-cpu-s")
	b.ReportMetric(liveHeap()-before, "etcd-MiB")
	start = cpuTime()
	entries, _, err := client.List(b.Context(), model.Root(model.DefaultPrefix))
	if err != nil || len(entries) != len(in.Deltas) {
		b.Fatalf("%d of %d objects: %v", len(entries), len(in.Deltas), err)
	}
	b.ReportMetric((cpuTime() - start).Seconds(), "list-cpu-s")
	bytes := 0
	for _, e := range entries {
		bytes += len(e.Key) + len(e.Value)
	}
	b.ReportMetric(float64(len(entries)), "objects")
	b.ReportMetric(float64(bytes)/(1<<20), "bytes-MiB")
	if file, err := os.Stat(filepath.Join(dir, "member", "snap", "db")); err == nil {
		b.ReportMetric(float64(file.Size())/(1<<20), "file-MiB")
	}
	pods := podsOf(entries)
	for _, n := range watchers {
		w := watchState(b, n, revision(b, client), len(pods), dial)
		start := cpuTime()
		w.write(b, client, pods)
		b.ReportMetric(perEvent(cpuTime()-start, pods), strconv.Itoa(n)+"-watches-cpu-us/event")
		w.end()
	}
}

// podsOf returns the pods to write again.
func podsOf(entries []model.Entry) []model.Entry {
	pods := slices.DeleteFunc(entries, func(e model.Entry) bool {
		return !strings.HasPrefix(e.Key, model.KindRoot(model.DefaultPrefix, model.KindPod))
	})
	return pods[:min(len(pods), writtenAgain)]
}

func perEvent(d time.Duration, events []model.Entry) float64 {
	return float64(d.Microseconds()) / float64(len(events))
}

// watching are watches of the state, until each has seen what it waits for.
type watching struct {
	cancel           context.CancelFunc
	running, waiting sync.WaitGroup
}

// watchState starts watches that wait for so many events after a revision. A proxy now and then
// ends a watch that it joins with another: it goes on behind what it has seen.
func watchState(b *testing.B, watches int, after int64, events int, dial func() *kvstore.Client) *watching {
	w := &watching{}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(b.Context())
	w.waiting.Add(watches)
	for range watches {
		c, seen, last := dial(), 0, after
		w.running.Go(func() {
			for ctx.Err() == nil {
				_ = c.Watch(ctx, model.Root(model.DefaultPrefix), last+1, func(entries []model.Entry, at int64) {
					last = at
					if before := seen; len(entries) > 0 {
						if seen += len(entries); before < events && seen >= events {
							w.waiting.Done()
						}
					}
				})
			}
		})
	}
	return w
}

// write writes entries one by one, as events come, until all watches have seen them.
func (w *watching) write(b *testing.B, c *kvstore.Client, events []model.Entry) {
	for _, e := range events {
		if err := c.Write(b.Context(), []model.Entry{e}, nil); err != nil {
			b.Fatal(err)
		}
	}
	w.waiting.Wait()
}

// end ends the watches.
func (w *watching) end() {
	w.cancel()
	w.running.Wait()
}

// nodeNeeds counts the pods that a node's own pods and the sets of their policies have, the
// namespaces of those, and all pods of these namespaces.
func nodeNeeds(b *testing.B, in model.Changes) {
	x := startSubject(b, recorder, workloadNode, nil)
	defer x.close()
	before, start := liveHeap(), cpuTime()
	x.apply(in)
	b.ReportMetric((cpuTime() - start).Seconds(), "agent-cpu-s")
	b.ReportMetric(liveHeap()-before, "agent-MiB")
	members := map[netip.Addr]bool{}
	for _, set := range x.recorder.Sets() {
		for _, p := range set {
			members[p.Addr()] = p.IsSingleIP()
		}
	}
	needed, inNamespace, concerned := 0, map[string]int{}, map[string]bool{}
	for _, d := range in.Deltas {
		p, ok := d.Value.(*model.Pod)
		if !ok {
			continue
		}
		inNamespace[d.ID.Namespace]++
		if p.NodeName == workloadNode || slices.ContainsFunc(p.Ips, func(a string) bool { return members[netip.MustParseAddr(a)] }) {
			needed++
			concerned[d.ID.Namespace] = true
		}
	}
	within := 0
	for ns := range concerned {
		within += inNamespace[ns]
	}
	b.ReportMetric(float64(needed), "needed-pods")
	b.ReportMetric(float64(len(concerned)), "needed-namespaces")
	b.ReportMetric(float64(within), "pods-in-them")
}
