package vpptest

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
)

// Hits returns how often each rule of an ACL has decided, of all threads, from the
// statistics segment.
func (v *Process) Hits(index uint32) []uint64 {
	v.TB.Helper()
	data := v.statistic(fmt.Sprintf("^/acl/%d/matches$", index))
	counters, ok := data.(adapter.CombinedCounterStat)
	if !ok {
		v.TB.Fatalf("the counter of acl %d is a %T", index, data)
	}
	return summed(counters, func(c adapter.CombinedCounter) uint64 { return c.Packets() })
}

// summed returns the sums over all threads.
func summed[C any](threads [][]C, of func(C) uint64) (out []uint64) {
	for _, thread := range threads {
		for i, c := range thread {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] += of(c)
		}
	}
	return out
}

// Counts returns the sums, over all threads, of a vector of counters in the statistics segment.
func (v *Process) Counts(name string) []uint64 {
	v.TB.Helper()
	return summed(v.simple(name), func(c adapter.Counter) uint64 { return uint64(c) })
}

// CountsOf returns the sum of a vector of counters of one thread in the statistics segment.
func (v *Process) CountsOf(name string, thread int) (sum uint64) {
	v.TB.Helper()
	if all := v.simple(name); thread < len(all) {
		for _, c := range all[thread] {
			sum += uint64(c)
		}
	}
	return sum
}

func (v *Process) simple(name string) adapter.SimpleCounterStat {
	v.TB.Helper()
	data := v.statistic("^" + name + "$")
	counters, ok := data.(adapter.SimpleCounterStat)
	if !ok {
		v.TB.Fatalf("%s is a %T", name, data)
	}
	return counters
}

// Heap returns how much of VPP's main heap is used, in bytes, from the statistics segment. VPP
// counts it every 10 s.
func (v *Process) Heap() uint64 { v.TB.Helper(); return v.used("main heap") }

// Segment returns how much of VPP's statistics segment is used, in bytes. VPP counts it every 10 s.
func (v *Process) Segment() uint64 { v.TB.Helper(); return v.used("stat segment") }

func (v *Process) used(name string) uint64 {
	v.TB.Helper()
	heap, ok := v.statistic("^/mem/" + name + "$").(adapter.SimpleCounterStat)
	if !ok || len(heap) == 0 || len(heap[0]) < 2 {
		v.TB.Fatalf("the size of the %s is %v", name, heap)
	}
	return uint64(heap[0][1])
}

// NextHeap waits until VPP has counted its memory anew, and returns Heap.
func (v *Process) NextHeap() uint64 {
	v.TB.Helper()
	beat := func() adapter.ScalarStat {
		n, ok := v.statistic("^/sys/heartbeat$").(adapter.ScalarStat)
		if !ok {
			v.TB.Fatal("the heartbeat is no number")
		}
		return n
	}
	last := beat() + 1 // during which something may have changed
	Eventually(v.TB, "vpp to count its memory", func() bool { return beat() > last })
	return v.Heap()
}

// statistic reads the only entry of the statistics segment whose name matches.
func (v *Process) statistic(pattern string) adapter.Stat {
	v.TB.Helper()
	var client *statsclient.StatsClient
	Eventually(v.TB, "vpp to hand over its statistics segment", func() bool { // a busy one may close the socket first
		client = statsclient.NewStatsClient(v.StatsSocket())
		return client.Connect() == nil
	})
	defer func() {
		if err := client.Disconnect(); err != nil {
			v.TB.Fatal(err)
		}
	}()
	var entries []adapter.StatEntry
	var err error
	Eventually(v.TB, "the statistics segment to be at rest", func() bool {
		entries, err = client.DumpStats(pattern)
		return !errors.Is(err, adapter.ErrStatsDataBusy)
	})
	if err != nil || len(entries) != 1 {
		v.TB.Fatalf("%d statistics match %s: %v", len(entries), pattern, err)
	}
	return entries[0].Data
}
