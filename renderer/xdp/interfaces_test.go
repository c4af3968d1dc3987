package xdp_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/wires"
)

// found asks for the interfaces of addresses on a node.
func found(c *wires.Cable, ips ...netip.Addr) (out []uint32) {
	c.Must(wires.Inside(c.Node, func() error {
		out = xdp.NewFinder(nil).Interfaces(api.PodID{}, ips)
		return nil
	}))
	return out
}

func TestInterfacesAreFoundByRoutes(t *testing.T) {
	c := wires.New(t, "a", "b")
	for name, h := range c.Pods {
		for _, ips := range [][]netip.Addr{{h.V4}, {h.V6}, {h.V4, h.V6}} {
			if got := found(c, ips...); !slices.Equal(got, []uint32{uint32(h.Index)}) {
				t.Errorf("pod %s with %v has interfaces %v, want %d", name, ips, got, h.Index)
			}
		}
	}
	if got := found(c, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd99::1")); len(got) > 0 {
		t.Errorf("what is no pod of the node has interfaces %v", got)
	}
}

func TestInterfacesAreFoundBehindABridge(t *testing.T) {
	c := wires.New(t, "a", "b")
	a, b := c.Pods["a"], c.Pods["b"]
	c.Must(wires.Inside(c.Node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "bridge"
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			return err
		}
		for _, h := range []*wires.Host{a, b} {
			l, err := netlink.LinkByIndex(h.Index)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, bridge); err != nil {
				return err
			}
		}
		for _, h := range []*wires.Host{a, b} { // the bridge has its address now
			mac := a.Name[0]
			if h == b {
				mac++
			}
			hw := []byte{2, 0, 0, 0, 0, mac}
			if err := netlink.NeighSet(&netlink.Neigh{ // as the bridge learns it
				LinkIndex: h.Index, Family: 7, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_MASTER, HardwareAddr: hw,
			}); err != nil {
				return err
			}
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: bridge.Index, IP: h.V4.AsSlice(), HardwareAddr: hw, State: netlink.NUD_PERMANENT}); err != nil {
				return err
			}
			route := &netlink.Route{LinkIndex: bridge.Index, Dst: netlinkNet(h.V4).IPNet, Scope: netlink.SCOPE_LINK}
			if err := netlink.RouteReplace(route); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, h := range []*wires.Host{a, b} {
		want := []uint32{uint32(h.Index)}
		got := found(c, h.V4)
		for end := time.Now().Add(wires.Patience); !slices.Equal(got, want) && time.Now().Before(end); got = found(c, h.V4) {
			time.Sleep(time.Millisecond) // until the bridge has a carrier
		}
		if !slices.Equal(got, want) {
			t.Errorf("pod %s has interfaces %v, want %v", h.Name, got, want)
		}
	}
}

func netlinkNet(a netip.Addr) *netlink.Addr {
	out, _ := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String()) // which is one
	return out
}

// TestPairsThatComeAndGoAreFollowed: what the kernel tells of interfaces prompts the renderer,
// which enforces at the new one what was told before.
func TestPairsThatComeAndGoAreFollowed(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b")
	w.Serve("b", 80)
	prompts := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	finder := xdp.NewFinder(nil)
	go func() {
		ended <- wires.Inside(w.Node, func() error {
			return finder.Watch(ctx, func() {
				select {
				case prompts <- struct{}{}:
				default:
				}
			})
		})
	}()
	r, err := xdp.New(xdp.Options{Plane: w.kernel, Interfaces: finder.Interfaces})
	w.Must(err)
	txn := r.NewTxn(true)
	b := w.Pods["b"]
	txn.Render(api.PodID{Namespace: "net", Name: "b"}, renderer.PodConfig{IPs: []netip.Addr{b.V4, b.V6}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
	commit := func(txn renderer.Txn) error {
		return wires.Inside(w.Node, func() error { return txn.Commit(t.Context()) })
	}
	w.Must(commit(txn))
	w.Can(false, "before", "a", "b", "tcp", 4, 80)
	old := uint32(b.Index)
	w.Must(wires.Inside(w.Node, func() error { return wires.Unplug(b.Index) }))
	w.Plug(b)
	deadline := time.After(wires.Patience)
	for attached := false; !attached; {
		select {
		case <-prompts:
		case <-deadline:
			t.Fatal("nothing prompts the renderer to attach to the new interface")
		}
		_ = commit(r.NewTxn(false)) // which fails while the pod has no interface
		ids, err := w.kernel.Attached()
		w.Must(err)
		attached = slices.Contains(ids, uint32(b.Index)) && !slices.Contains(ids, old)
	}
	w.Can(false, "after", "a", "b", "tcp", 4, 80)
	w.Can(true, "what is not isolated", "b", "a", "icmp", 4, 0)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
	w.Must(r.Close())
}
