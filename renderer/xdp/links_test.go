package xdp_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
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

// TestKernelLearnsPortsOfTunnels: those of devices that the node has, or gets, are closed to pods
// as those of --pod-tunnel-ports are.
func TestKernelLearnsPortsOfTunnels(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	vxlan := func(name string, id, port int) {
		w.Must(wires.Inside(w.Node, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: id, Port: port, Learning: true})
		}))
	}
	passes := func(want bool, what string, port uint16) {
		t.Helper()
		frame := xdp.Frame(api.Flow{Src: w.Pods["a"].V4, Dst: w.Pods["b"].V4, Protocol: api.UDP, SrcPort: 4000, DstPort: port}, false)
		got, err := w.kernel.Probe(uint32(w.Pods["a"].Index), compile.FromPod, frame)
		w.Must(err)
		if got != want {
			t.Errorf("%s: UDP to port %d passes: %t, want %t", what, port, got, want)
		}
	}
	policies := map[string]policy{"b": {fromPod: closed}}
	w.apply(policies)
	passes(true, "without a device", 4790)
	t.Run("while the agent runs", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- wires.Inside(w.Node, func() error { return w.kernel.FollowLinks(ctx) }) }()
		vxlan("vx0", 1, 4790)
		for end := time.Now().Add(wires.Patience); w.r.State().Err == nil && time.Now().Before(end); runtime.Gosched() {
			w.Must(wires.Inside(w.Node, func() error { w.r.Look(); return nil }))
		}
		if err := w.r.State().Err; err == nil || !strings.Contains(err.Error(), "UDP port 4790") {
			t.Errorf("found is %v", err)
		}
		w.Must(wires.Inside(w.Node, func() error { return w.r.Apply(t.Context(), renderer.Changes{}) }))
		passes(false, "with a device", 4790)
		passes(false, "with a device", 8472)
		passes(true, "with a device", 4791)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	w.stop()
	vxlan("vx1", 2, 4791)
	w.start()
	w.apply(policies)
	passes(false, "from the start", 4790)
	passes(false, "from the start", 4791)
	passes(true, "from the start", 4792)
}
