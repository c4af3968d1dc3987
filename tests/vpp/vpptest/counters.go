package vpptest

import (
	"fmt"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
)

// Hits returns how often each rule of an ACL has decided, of all threads, from the
// statistics segment.
func (v *Process) Hits(index uint32) []uint64 {
	v.TB.Helper()
	client := statsclient.NewStatsClient(v.StatsSocket())
	if err := client.Connect(); err != nil {
		v.TB.Fatal(err)
	}
	defer func() {
		if err := client.Disconnect(); err != nil {
			v.TB.Fatal(err)
		}
	}()
	entries, err := client.DumpStats(fmt.Sprintf("^/acl/%d/matches$", index))
	if err != nil || len(entries) != 1 {
		v.TB.Fatalf("%d counters of acl %d: %v", len(entries), index, err)
	}
	counters, ok := entries[0].Data.(adapter.CombinedCounterStat)
	if !ok {
		v.TB.Fatalf("the counter of acl %d is a %T", index, entries[0].Data)
	}
	var out []uint64
	for _, thread := range counters {
		for i, c := range thread {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] += c.Packets()
		}
	}
	return out
}
