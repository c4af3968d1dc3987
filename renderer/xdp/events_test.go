package xdp_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

func TestEventsTellOfDropsAndAreLimited(t *testing.T) {
	const limit = 5
	l := newLab(t, func(o *labOptions) { o.kernel.EventsPerSecond = limit })
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	f := tcpFlow(friend4, own4, 4000, 81)
	for range 1000 {
		l.want(false, "another port", compile.ToPod, xdp.Frame(f, false))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var got []xdp.Event
	_ = l.kernel.Events(ctx, func(e xdp.Event) {
		if got = append(got, e); len(got) == limit {
			cancel()
		}
	})
	if len(got) < limit {
		t.Fatalf("there were %d events, want %d", len(got), limit)
	}
	for _, e := range got {
		d := l.r.Explained(e)
		if e.Flow != f || e.Reason != "policy" || e.Direction != compile.ToPod || e.Interface != labID || d.Rule != 1 || d.Action != api.Deny {
			t.Errorf("event %+v is explained by %+v", e, d)
		}
	}
}
