package ligato_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
)

// sink is a store that only counts what it is given.
type sink struct{ keys, bytes int }

func (*sink) List(context.Context, string) ([]model.Entry, int64, error) { return nil, 0, nil }

func (s *sink) Write(_ context.Context, puts []model.Entry, deletes []string) error {
	s.keys += len(puts) + len(deletes)
	for _, e := range puts {
		s.bytes += len(e.Value)
	}
	return nil
}

// BenchmarkJoin measures one address that joins and leaves a set that 100 pods share.
func BenchmarkJoin(b *testing.B) {
	for _, members := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			store := &sink{}
			r, err := ligato.New(ligato.Options{Store: store, Interfaces: func(p api.PodID) []string { return []string{p.Name} }})
			if err != nil {
				b.Fatal(err)
			}
			tell := func(resync bool, fill func(*renderer.Changes)) {
				x := renderer.Changes{Resync: resync}
				fill(&x)
				if err := r.Apply(b.Context(), x); err != nil {
					b.Fatal(err)
				}
			}
			member := func(i int) netip.Prefix {
				return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 15), byte(i >> 7), byte(i << 1)}), 32)
			}
			tell(true, func(x *renderer.Changes) {
				var all []netip.Prefix
				for i := range members {
					all = append(all, member(i))
				}
				x.UpdateSet(clients, all, nil)
				for i := range 100 {
					render(x, fmt.Sprintf("pod-%d", i), fmt.Sprintf("10.250.0.%d", i+1), nil, list(from(api.SetNet(clients), 80)))
				}
			})
			store.keys, store.bytes = 0, 0
			b.ReportAllocs()
			for b.Loop() {
				tell(false, func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{member(members)}, nil) })
				tell(false, func(x *renderer.Changes) { x.UpdateSet(clients, nil, []netip.Prefix{member(members)}) })
			}
			b.ReportMetric(float64(store.keys)/float64(2*b.N), "keys/event")
			b.ReportMetric(float64(store.bytes)/float64(2*b.N), "bytes/event")
		})
	}
}
