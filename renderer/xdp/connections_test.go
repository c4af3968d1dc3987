package xdp_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// wired is a renderer over the kernel, for the pods of a cable.
type wired struct {
	*cable
	options xdp.KernelOptions
	uplink  string // the pod whose interface is an uplink as well
	kernel  *xdp.Kernel
	r       *xdp.Renderer
}

func newWired(t testing.TB, mode xdp.Mode, o xdp.KernelOptions, names ...string) *wired {
	t.Helper()
	w := &wired{cable: newCable(t, names...), options: o}
	w.options.Mode, w.options.PodNamespace = mode, w.podNamespace
	if w.options.Flows == 0 {
		w.options.Flows = 1024
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *wired) start() {
	w.t.Helper()
	if w.uplink != "" {
		w.options.Uplinks = []uint32{uint32(w.pods[w.uplink].index)}
	}
	w.must(inside(w.node, func() (err error) {
		w.kernel, err = xdp.NewKernel(w.options)
		return err
	}))
	var err error
	w.r, err = xdp.New(xdp.Options{Plane: w.kernel, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(w.pods[pod.Name].index)}
	}})
	w.must(err)
}

func (w *wired) stop() {
	w.t.Helper()
	w.must(w.r.Close())
	w.must(inside(w.node, w.kernel.Close))
}

// policy is what a pod is told; nil lists are open.
type policy struct{ toPod, fromPod []api.ContivRule }

// apply tells everything.
func (w *wired) apply(policies map[string]policy) {
	w.t.Helper()
	txn := w.r.NewTxn(true)
	for name, h := range w.pods {
		cfg := renderer.PodConfig{IPs: []netip.Addr{h.v4, h.v6}}
		if l := policies[name].toPod; l != nil {
			cfg.Egress = renderer.NewRuleList(append(l, api.ContivRule{}), nil)
		}
		if l := policies[name].fromPod; l != nil {
			cfg.Ingress = renderer.NewRuleList(append(l, api.ContivRule{}), nil)
		}
		txn.Render(api.PodID{Namespace: "net", Name: name}, cfg)
	}
	w.must(inside(w.node, func() error { return txn.Commit(context.Background()) }))
}

// rules permit a protocol and ports from a pod, in both families.
func (w *wired) rules(peer string, protocol api.Protocol, ports api.PortRange) (out []api.ContivRule) {
	for _, a := range []netip.Addr{w.pods[peer].v4, w.pods[peer].v6} {
		out = append(out, api.ContivRule{Action: api.Permit, Src: api.AddrNet(a), Protocol: protocol, DstPort: ports})
	}
	return out
}

// TestConnections makes real connections in every mode.
func TestConnections(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric, xdp.ModeXDPPod} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWired(t, mode, xdp.KernelOptions{}, "a", "b", "c")
			for _, port := range []uint16{80, 81} {
				w.serve("a", port)
				w.serve("b", port)
			}
			for _, family := range []int{4, 6} {
				w.connections(family)
			}
		})
	}
}

func (w *wired) connections(family int) {
	w.apply(nil)
	for _, network := range []string{"tcp", "udp", "icmp"} {
		w.can(true, "no policy", "a", "b", network, family, 81)
	}
	in := w.rules("a", api.TCP, api.Port(80))
	w.apply(map[string]policy{"b": {toPod: append(in, w.rules("a", api.UDP, api.Ports(80, 90))...)}})
	w.can(true, "ingress: allowed", "a", "b", "tcp", family, 80)
	w.can(false, "ingress: another port", "a", "b", "tcp", family, 81)
	w.can(true, "ingress: a range", "a", "b", "udp", family, 81)
	w.can(false, "ingress: another pod", "c", "b", "tcp", family, 80)
	w.can(false, "ingress: ping", "a", "b", "icmp", family, 0)
	w.can(true, "ingress: the pod as a client", "b", "a", "tcp", family, 81)
	w.can(true, "ingress: the pod as a client", "b", "a", "udp", family, 81)
	w.can(true, "ingress: the pod pings", "b", "a", "icmp", family, 0)

	w.apply(map[string]policy{"b": {toPod: in, fromPod: closed}})
	w.can(true, "both: allowed", "a", "b", "tcp", family, 80)
	w.can(false, "both: the pod as a client", "b", "a", "tcp", family, 80)

	conn, err := w.dial("a", "b", "tcp", family, 80, patience)
	w.must(err)
	defer func() { _ = conn.Close() }()
	w.must(echo(conn, patience))
	w.apply(map[string]policy{"b": {toPod: append(in, w.rules("c", api.TCP, api.Port(81))...), fromPod: closed}})
	if err := echo(conn, patience); err != nil {
		w.t.Errorf("a change that is not about an open connection ends it: %v", err)
	}
	w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
	if err := echo(conn, impatience); err == nil {
		w.t.Error("an open connection goes on that is not permitted any more")
	}
}

// bpffs returns a folder for pins, in a bpf file system of its own.
func bpffs(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, "mode=0700"); err != nil {
		t.Skipf("no bpf file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(root, "sluice")
	t.Cleanup(func() {
		if _, err := xdp.Cleanup(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is there after the clean-up: %v", err)
		}
	})
	return path
}

// TestEnforcementGoesOnWhileTheAgentRestarts has an open connection and denied ones, all the
// time, through the end and the start of the process.
func TestEnforcementGoesOnWhileTheAgentRestarts(t *testing.T) {
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b", "c")
	w.serve("b", 80)
	policies := map[string]policy{"b": {toPod: w.rules("a", api.TCP, api.Port(80)), fromPod: closed}}
	w.apply(policies)
	conn, err := w.dial("a", "b", "tcp", 4, 80, patience)
	w.must(err)
	defer func() { _ = conn.Close() }()
	stop, wrong := w.hammer("c", "b", 80)
	w.must(echo(conn, patience))
	w.stop()
	w.must(echo(conn, patience)) // nobody is there
	w.can(false, "while nobody is there", "c", "b", "tcp", 4, 80)
	w.start()
	mark := w.kernel.Mark()
	w.must(echo(conn, patience))
	w.apply(policies)
	if w.kernel.Mark() != mark || mark == (xdp.Mark{}) {
		t.Errorf("equal policies are not taken over: the mark was %x and is %x", mark, w.kernel.Mark())
	}
	w.must(echo(conn, patience))
	policies["b"] = policy{toPod: append(w.rules("a", api.TCP, api.Port(80)), w.rules("a", api.UDP, api.Port(80))...), fromPod: closed}
	w.apply(policies)
	w.must(echo(conn, patience))
	w.can(true, "a rule that came after the restart", "a", "b", "udp", 4, 80)
	stop()
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d packets got through that no policy allows", n)
	}
	w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
	if err := echo(conn, impatience); err == nil {
		t.Error("an open connection goes on that is not permitted any more")
	}
}

// hammer sends datagrams that are denied and counts answers, until stop is called.
func (w *wired) hammer(from, to string, port uint16) (stop func(), wrong *atomic.Int64) {
	wrong = &atomic.Int64{}
	conn, err := w.dial(from, to, "udp", 4, port, patience)
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64)
		for {
			if _, err := conn.Read(b); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
				continue
			}
			wrong.Add(1)
		}
	}()
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				_, _ = conn.Write([]byte("knock"))
			}
		}
	}()
	return func() {
		close(ended)
		_ = conn.SetReadDeadline(time.Now().Add(impatience))
		<-done
		_ = conn.Close()
	}, wrong
}

// TestAPairThatIsMadeAgainIsAttachedAgain replaces the interface of a pod.
func TestAPairThatIsMadeAgainIsAttachedAgain(t *testing.T) {
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	w.serve("b", 80)
	policies := map[string]policy{"b": {toPod: closed}}
	w.apply(policies)
	w.can(false, "before", "a", "b", "tcp", 4, 80)
	old := w.pods["b"].index
	w.must(inside(w.node, func() error { return unplug(old) }))
	w.plug(w.pods["b"])
	if w.pods["b"].index == old {
		t.Fatal("the new interface has the number of the old one")
	}
	w.apply(policies)
	w.can(false, "after", "a", "b", "tcp", 4, 80)
	ids, err := w.kernel.Attached()
	w.must(err)
	if len(ids) != 2 {
		t.Errorf("%d interfaces are attached, want 2", len(ids))
	}
}

// TestUplinksDropEarly has the program of uplinks where packets of a pod come in, and nothing
// at the pod that they go to.
func TestUplinksDropEarly(t *testing.T) {
	w := newWired(t, xdp.ModeNone, xdp.KernelOptions{}, "a", "b", "c")
	w.stop()
	w.uplink = "c"
	w.start()
	w.serve("b", 80)
	w.serve("c", 80)
	w.apply(map[string]policy{"b": {toPod: w.rules("c", api.TCP, api.Port(80))}})
	for _, family := range []int{4, 6} {
		w.can(true, "allowed", "c", "b", "tcp", family, 80)
		w.can(false, "denied", "c", "b", "udp", family, 80)
		w.can(true, "not by the uplink", "a", "b", "udp", family, 80)
	}
}
