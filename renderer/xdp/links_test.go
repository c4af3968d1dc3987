package xdp_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/wires"
)

// followed has a kernel follow the devices of its node.
func (w *wired) followed() {
	w.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- wires.Inside(w.Node, func() error { return w.kernel.FollowLinks(ctx) }) }()
	w.T.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.T.Errorf("following ended with %v", err)
		}
	})
}

// reaches waits until programs know the hardware address that a pod reaches.
func (w *wired) reachesBy(what, pod string, want net.HardwareAddr) {
	w.T.Helper()
	for end := time.Now().Add(wires.Patience); ; runtime.Gosched() {
		got, err := w.kernel.Reaches(uint32(w.Pods[pod].Index))
		w.Must(err)
		if string(got[:]) == string(want) {
			return
		}
		if time.Now().After(end) {
			w.T.Fatalf("%s: pod %s reaches %v, want %v", what, pod, got, want)
		}
	}
}

// TestKernelFollowsAddressOfBridge: packets to the present address of a bridge are left to the
// node, which judges them behind translation; those to another address are not.
func TestKernelFollowsAddressOfBridge(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b")
	w.apply(map[string]policy{"b": {toPod: closed}})
	w.followed()
	w.reachesBy("routed", "a", w.mac(w.Node, "h-a"))
	w.Bridge(false)
	w.reachesBy("a port", "a", w.mac(w.Node, "br0"))
	w.reachesBy("a port", "b", w.mac(w.Node, "br0"))
	next := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	w.Must(wires.Inside(w.Node, func() error {
		l, err := netlink.LinkByName("br0")
		return errors.Join(err, netlink.LinkSetHardwareAddr(l, next))
	}))
	w.reachesBy("another address", "a", next)
	w.reachesBy("another address", "b", next)
	w.Must(wires.Inside(w.Node, func() error {
		l, err := netlink.LinkByName("h-a")
		return errors.Join(err, netlink.LinkSetNoMaster(l))
	}))
	w.reachesBy("no port any more", "a", w.mac(w.Node, "h-a"))
	w.reachesBy("still a port", "b", next)
}
