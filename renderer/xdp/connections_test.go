package xdp_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// wired is a renderer over the kernel, for the pods of a cable.
type wired struct {
	sets map[api.SetID][]netip.Prefix
	*wires.Cable
	options xdp.KernelOptions
	uplink  string // the pod with an interface that is an uplink as well
	kernel  *xdp.Kernel
	r       *xdp.Renderer
}

func newWired(t testing.TB, mode xdp.Mode, o xdp.KernelOptions, names ...string) *wired {
	t.Helper()
	needKernel(t)
	w := &wired{Cable: wires.New(t, names...), options: o}
	w.options.Mode = mode
	if w.options.Flows == 0 {
		w.options.Flows = 1024
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *wired) start() {
	w.T.Helper()
	if w.uplink != "" {
		w.options.Uplinks = []uint32{uint32(w.Pods[w.uplink].Index)}
	}
	w.Must(wires.Inside(w.Node, func() (err error) {
		w.kernel, err = xdp.NewKernel(w.options)
		return err
	}))
	var err error
	w.r, err = xdp.New(xdp.Options{Dataplane: w.kernel, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(w.Pods[pod.Name].Index)}
	}})
	w.Must(err)
}

func (w *wired) stop() {
	w.T.Helper()
	w.Must(w.r.Close())
	w.Must(wires.Inside(w.Node, w.kernel.Close))
}

// policy is the policy of a pod; nil lists permit everything.
type policy struct{ toPod, fromPod []api.ContivRule }

// apply commits all policies by a resync.
func (w *wired) apply(policies map[string]policy) {
	w.T.Helper()
	changes := renderer.Changes{Resync: true}
	for id, members := range w.sets {
		changes.UpdateSet(id, members, nil)
	}
	for name, h := range w.Pods {
		cfg := renderer.PodConfig{IPs: []netip.Addr{h.V4, h.V6}}
		if l := policies[name].toPod; l != nil {
			cfg.Egress = renderer.NewRuleList(append(l, api.ContivRule{}), nil)
		}
		if l := policies[name].fromPod; l != nil {
			cfg.Ingress = renderer.NewRuleList(append(l, api.ContivRule{}), nil)
		}
		changes.Render(api.PodID{Namespace: "net", Name: name}, cfg)
	}
	w.Must(wires.Inside(w.Node, func() error { return w.r.Apply(context.Background(), changes) }))
}

// rules permit a protocol and ports from a pod, in both families.
func (w *wired) rules(peer string, protocol api.Protocol, ports api.PortRange) (out []api.ContivRule) {
	for _, a := range []netip.Addr{w.Pods[peer].V4, w.Pods[peer].V6} {
		out = append(out, api.ContivRule{Action: api.Permit, Src: api.AddrNet(a), Protocol: protocol, DstPort: ports})
	}
	return out
}

// TestConnectionsPassReplies makes real connections in every mode.
func TestConnectionsPassReplies(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			w := newWired(t, mode, xdp.KernelOptions{}, "a", "b", "c")
			for _, port := range []uint16{80, 81} {
				w.Serve("a", port)
				w.Serve("b", port)
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
		w.Can(true, "no policy", "a", "b", network, family, 81)
	}
	in := w.rules("a", api.TCP, api.Port(80))
	w.apply(map[string]policy{"b": {toPod: append(in, w.rules("a", api.UDP, api.Ports(80, 90))...)}})
	w.Can(true, "ingress: allowed", "a", "b", "tcp", family, 80)
	w.Can(false, "ingress: another port", "a", "b", "tcp", family, 81)
	w.Can(true, "ingress: a range", "a", "b", "udp", family, 81)
	w.Can(false, "ingress: another pod", "c", "b", "tcp", family, 80)
	w.Can(false, "ingress: ping", "a", "b", "icmp", family, 0)
	w.Can(true, "ingress: the pod as a client", "b", "a", "tcp", family, 81)
	w.Can(true, "ingress: the pod as a client", "b", "a", "udp", family, 81)
	w.Can(true, "ingress: the pod pings", "b", "a", "icmp", family, 0)

	w.apply(map[string]policy{"b": {toPod: in, fromPod: closed}})
	w.Can(true, "both: allowed", "a", "b", "tcp", family, 80)
	w.Can(false, "both: the pod as a client", "b", "a", "tcp", family, 80)

	talk := w.Open("a", "b", family, 80)
	talk.GoesOn("from its beginning")
	w.apply(map[string]policy{"b": {toPod: append(in, w.rules("c", api.TCP, api.Port(81))...), fromPod: closed}})
	talk.GoesOn("a change that is not about it")
	w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
	talk.IsCut("everything is closed")
}

// bpffs returns a folder for pins, in a bpf file system of its own.
func bpffs(t testing.TB) string {
	t.Helper()
	needKernel(t) // else there would be nothing to clean up
	path := filepath.Join(wires.BPFFS(t), "sluice")
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

// TestKernelEnforcesWhileAgentRestarts has an open connection, and packets that must pass and
// that must not, all the time, through the end and the start of the process, in modes with pinned
// attachments and in one without.
func TestKernelEnforcesWhileAgentRestarts(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			needKernel(t)
			w := newWired(t, mode, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b", "c")
			w.restarts()
		})
	}
}

func (w *wired) restarts() {
	w.Serve("b", 80)
	rules := append(w.rules("a", api.TCP, api.Port(80)), w.rules("a", api.UDP, api.Port(80))...)
	policies := map[string]policy{"b": {toPod: rules, fromPod: closed}}
	w.apply(policies)
	talk := w.Open("a", "b", 4, 80)
	counts := []*wires.Count{w.Send("c", "b", 4, 80, false), w.Send("a", "b", 4, 80, true), w.Send("a", "b", 6, 80, true)}
	talk.GoesOn("before the end")
	w.stop()
	talk.GoesOn("nobody is there")
	w.Can(false, "while nobody is there", "c", "b", "tcp", 4, 80)
	w.start()
	digest := w.kernel.StateDigest()
	talk.GoesOn("what is pinned is taken over")
	w.apply(policies)
	if w.kernel.StateDigest() != digest || digest == (xdp.StateDigest{}) {
		w.T.Errorf("equal policies are not taken over: the mark was %x and is %x", digest, w.kernel.StateDigest())
	}
	talk.GoesOn("equal policies")
	policies["b"] = policy{toPod: append(rules, w.rules("a", api.UDP, api.Port(81))...), fromPod: closed}
	w.apply(policies)
	talk.GoesOn("another policy")
	w.Serve("b", 81)
	w.Can(true, "a rule that came after the restart", "a", "b", "udp", 4, 81)
	w.Right(1, counts...)
	w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
	talk.IsCut("everything is closed")
}

// TestAttachmentsFollowRecreatedPairs replaces the interface of a pod.
func TestAttachmentsFollowRecreatedPairs(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	w.Serve("b", 80)
	policies := map[string]policy{"b": {toPod: closed}}
	w.apply(policies)
	w.Can(false, "before", "a", "b", "tcp", 4, 80)
	old := w.Pods["b"].Index
	w.Must(wires.Inside(w.Node, func() error { return wires.Unplug(old) }))
	w.Plug(w.Pods["b"])
	if w.Pods["b"].Index == old {
		t.Fatal("the new interface has the number of the old one")
	}
	w.apply(policies)
	w.Can(false, "after", "a", "b", "tcp", 4, 80)
	ids, err := w.kernel.Attached()
	w.Must(err)
	if len(ids) != 2 {
		t.Errorf("%d interfaces are attached, want 2", len(ids))
	}
}

// TestUplinksDropEarly has the program of uplinks where packets of a pod come in, and nothing
// at the pod that they go to.
func TestUplinksDropEarly(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeNone, xdp.KernelOptions{}, "a", "b", "c")
	w.stop()
	w.uplink = "c"
	w.start()
	w.Serve("b", 80)
	w.Serve("c", 80)
	w.apply(map[string]policy{"b": {toPod: w.rules("c", api.TCP, api.Port(80))}})
	for _, family := range []int{4, 6} {
		w.Can(true, "allowed", "c", "b", "tcp", family, 80)
		w.Can(false, "denied", "c", "b", "udp", family, 80)
		w.Can(true, "not by the uplink", "a", "b", "udp", family, 80)
	}
}
