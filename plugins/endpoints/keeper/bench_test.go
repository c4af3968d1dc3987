package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// BenchmarkBirth measures how long a new interface of a pod is open: from the return of the call
// that creates it (it is down then) until both directions are blocked, with many other interfaces
// present.
func BenchmarkBirth(b *testing.B) {
	for _, others := range []int{0, 250} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			c := wires.New(b, "a")
			g := gate.New(wires.BPFFS(b) + "/sluice")
			k, err := keeper.New(keeper.Config{Gate: g, BlockNew: true, Scope: keeper.Scope{Prefixes: []string{"veth"}}})
			c.Must(err)
			c.Must(wires.Inside(c.Node, func() error {
				for i := range others {
					if _, err := newPair(c, fmt.Sprintf("veth-o%d", i)); err != nil {
						return err
					}
				}
				return k.Start()
			}))
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- wires.Inside(c.Node, func() error { return k.Run(ctx) }) }()
			var windows []time.Duration
			c.Must(wires.Inside(c.Node, func() error {
				for i := range b.N {
					window, err := birth(c, fmt.Sprintf("veth-n%d", i))
					if err != nil {
						return err
					}
					windows = append(windows, window)
				}
				return nil
			}))
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
			slices.Sort(windows)
			b.ReportMetric(float64(windows[len(windows)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(windows[len(windows)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(windows[len(windows)-1].Microseconds()), "max-us")
		})
	}
}

// birth creates a pair and waits until it is blocked.
func birth(c *wires.Cable, name string) (time.Duration, error) {
	index, err := newPair(c, name)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		for {
			found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
			if err != nil {
				return 0, err
			}
			if len(found.Programs) > 0 {
				break
			}
		}
	}
	window := time.Since(began)
	return window, wires.Unplug(index)
}

func newPair(c *wires.Cable, name string) (index int, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(c.Pods["a"].NS)}); err != nil {
		return 0, err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}
