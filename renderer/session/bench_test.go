package session_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/stacks"
)

// member returns the n-th address of a set, scattered over 10.0.0.0/8.
func member(n int) netip.Prefix {
	n = n * 7919 % (1 << 24)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}

// BenchmarkJoin has an address join a set that a pod may connect to on one port, and leave it
// again: how long an event takes and how many rules it changes, by the size of the set. "anew" is
// what taking everything away and adding it again costs.
func BenchmarkJoin(b *testing.B) {
	for _, size := range []int{10, 100, 1000, 4000} {
		for _, anew := range []bool{false, true} {
			name := fmt.Sprintf("members=%d", size)
			if anew {
				name += "/anew"
			}
			b.Run(name, func(b *testing.B) { benchmarkJoin(b, size, anew) })
		}
	}
}

func benchmarkJoin(b *testing.B, size int, anew bool) {
	pod, set := api.PodID{Namespace: "test", Name: "client"}, api.NewSetID("peers")
	s := newStack(b, stacks.SessionOptions{}, pod)
	defer func() { _ = s.Close() }() // only disconnects
	cfg := renderer.PodConfig{IPs: []netip.Addr{netip.MustParseAddr("10.255.0.1")}, Ingress: renderer.NewRuleList([]api.ContivRule{
		{Action: api.Permit, Dst: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(443)}, {Action: api.Deny}}, nil)}
	commit := func(fill func(renderer.Txn)) {
		txn := s.Rules.NewTxn(false)
		fill(txn)
		if err := txn.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	var members []netip.Prefix
	for n := range size {
		members = append(members, member(n))
	}
	joins := []netip.Prefix{member(size)}
	commit(func(t renderer.Txn) { t.UpdateSet(set, members, nil); t.Render(pod, cfg) })
	before := s.Operations()
	for b.Loop() {
		if anew {
			commit(func(t renderer.Txn) { t.Remove(pod) })
			commit(func(t renderer.Txn) { t.Render(pod, cfg) })
			continue
		}
		commit(func(t renderer.Txn) { t.UpdateSet(set, joins, nil) })
		commit(func(t renderer.Txn) { t.UpdateSet(set, nil, joins) })
	}
	events := float64(b.N)
	if !anew {
		events *= 2
	}
	b.ReportMetric(float64(s.Operations()-before)/events, "rules/event")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/events, "us/event")
}
