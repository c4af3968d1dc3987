package vpp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/agent/verdicts/sampled"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// begun are rules whose counters have been read once.
type begun struct {
	*acl.Renderer
	once sync.Once
	read chan struct{}
}

func (b *begun) Counters() *renderer.State {
	defer b.once.Do(func() { close(b.read) })
	return b.Renderer.Counters()
}

// TestVPPVerdicts sends packets of the shop, with and without traces. Without them, rules say how
// many packets they decided; with them, most packets are named.
func TestVPPVerdicts(t *testing.T) {
	p := vpptest.NewNetwork(vpptest.Launch(t))
	l := &lab{Network: p, tb: t}
	l.real = startNode(t, "node-1", acl.Options{Socket: p.Socket(), Stats: acl.Stats{Socket: p.StatsSocket()}})
	l.twin = startNode(t, "node-1", acl.Options{})
	l.apply(shop(t).resync())
	mark := uint32(0)
	send := func(n int, port uint16) {
		var packets []vpptest.Packet
		for range n {
			mark++
			packets = append(packets, vpptest.First(api.Flow{Src: netip.MustParseAddr("10.10.1.10"), Dst: netip.MustParseAddr("10.10.1.20"),
				Protocol: api.TCP, SrcPort: uint16(42_000 + mark), DstPort: port}, mark))
		}
		l.Send(packets)
	}
	for _, nodes := range [][]string{nil, {"pg-input"}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			rules := &begun{Renderer: l.real.ACL, read: make(chan struct{})}
			s := &sampled.Source{Rules: rules, Socket: p.Socket(), Nodes: nodes, Log: slog.Default()}
			if err := s.Report(verdicts.All); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			packets, flows := map[api.Action]uint64{}, map[string]int{}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				done <- s.Events(ctx, func(e verdicts.Event) {
					mu.Lock()
					defer mu.Unlock()
					if name := api.OriginTexts(e.Decision.Origins); strings.Contains(name, "catalog") || strings.Contains(name, "shop/default-deny") {
						packets[e.Action] += max(e.Packets, 1)
						if e.Flow.Src.IsValid() {
							flows[fmt.Sprintf("%s %s %s %s:%d", e.Action, e.Direction, e.Pod, e.Flow.Dst, e.Flow.DstPort)]++
						}
					}
				})
			}()
			<-rules.read
			send(3, 8081)
			send(2, 9999)
			programs.Eventually(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				if packets[api.Permit] < 3 || packets[api.Deny] < 2 {
					return fmt.Errorf("packets %v, flows %v", packets, flows)
				}
				return nil
			})
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			t.Logf("packets %v, flows %v", packets, flows)
		})
	}
}
