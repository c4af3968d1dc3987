package xdp_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// look looks once, as Watch does every second, and reports whether the renderer asks for an Apply.
func (a *audited) look() {
	a.Must(wires.Inside(a.Node, func() error { a.r.Look(); return nil }))
}

// repaired commits nothing, without an audit that is due.
func (a *audited) repaired(what string) {
	a.T.Helper()
	a.Must(wires.Inside(a.Node, func() error { return a.r.Apply(a.T.Context(), renderer.Changes{}) }))
	if err := a.r.State().Err; err != nil {
		a.T.Errorf("%s: repaired, there is %v", what, err)
	}
}

// ahead attaches a program that permits everything before all others.
func (a *audited) ahead(name string) link.Link {
	a.T.Helper()
	p := pass(a.T.(*testing.T), name)
	var l link.Link
	a.Must(wires.Inside(a.Node, func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: int(a.index), Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		return err
	}))
	a.T.Cleanup(func() { _ = l.Close() })
	return l
}

// TestRendererLooksForChanges: what others change is found by one look, the state has an error
// until the next Apply, and that repairs it.
func TestRendererLooksForChanges(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	a.look()
	if err := a.r.State().Err; err != nil {
		t.Fatalf("nothing is changed, and there is %v", err)
	}
	detachHook := func() {
		hooks, err := filepath.Glob(filepath.Join(a.pins, "stack_forward4_*"))
		a.Must(err)
		if len(hooks) != 1 {
			t.Fatalf("programs at a netfilter hook: %v", hooks)
		}
		l, err := link.LoadPinnedLink(hooks[0], nil)
		a.Must(err)
		a.Must(errors.Join(l.Detach(), l.Close()))
	}
	for _, c := range []struct {
		kind, says string
		change     func()
	}{
		{"attachment", "is detached", func() { a.onLink(link.Link.Detach) }},
		{"program", "is replaced", func() { a.onLink(func(l link.Link) error { return l.Update(pass(t, "other")) }) }},
		{"program", "netfilter hook forward4", detachHook},
		{"pin", "is gone", func() { a.Must(os.Remove(a.pin("from_pod"))) }},
		{"pin", "is gone", func() { a.Must(os.Remove(filepath.Join(a.pins, "ends"))) }},
		{"order", "runs before", func() { a.ahead("other") }},
	} {
		before := a.r.State().Drift[c.kind]
		c.change()
		a.look()
		if err := a.r.State().Err; err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: found is %v, want %q", c.kind, err, c.says)
		}
		a.repaired(c.kind)
		if got := a.r.State().Drift[c.kind]; got <= before {
			t.Errorf("%s: drift is %v", c.kind, a.r.State().Drift)
		}
		a.Can(false, c.kind, "a", "b", "tcp", 4, 80)
		a.look()
		if err := a.r.State().Err; err != nil {
			t.Errorf("%s: after it was repaired there is %v", c.kind, err)
		}
	}
}

// TestRendererLooksForItsFolder: without a bpf file system nothing outlives the agent, which says
// so, and pins everything in the next one.
func TestRendererLooksForItsFolder(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	root := filepath.Dir(a.pins)
	a.Must(unix.Unmount(root, unix.MNT_DETACH))
	a.look()
	if err := a.r.State().Err; err == nil || !strings.Contains(err.Error(), "mount one by") {
		t.Errorf("found is %v", err)
	}
	if err := wires.Inside(a.Node, func() error { return a.r.Apply(t.Context(), renderer.Changes{}) }); err == nil {
		t.Error("a Commit without a folder for pins works")
	}
	a.Can(false, "without a folder", "a", "b", "tcp", 4, 80)
	a.Must(unix.Mount("bpf", root, "bpf", 0, "mode=0700"))
	a.look()
	a.repaired("the folder")
	for _, name := range []string{a.pin("to_pod"), a.pin("from_pod"), filepath.Join(a.pins, "ends"), filepath.Join(a.pins, "flows"), filepath.Join(a.pins, "owner")} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	a.Can(false, "with the next folder", "a", "b", "tcp", 4, 80)
	if err := xdp.CheckOwner(a.pins, "another", false); err == nil {
		t.Error("the next folder has no owner")
	}
}

// TestAuditDoesNotFightForFirstPlace: a program that comes back before Sluice's at once is named,
// and stays for some time.
func TestAuditDoesNotFightForFirstPlace(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	first := a.ahead("first")
	a.Must(a.apply())
	a.Can(false, "put in front", "a", "b", "tcp", 4, 80)
	if f := a.r.State().Foreign; len(f) > 0 {
		t.Errorf("a program behind is %+v", f)
	}
	second := a.ahead("second")
	for range 3 {
		err := a.apply()
		if f := a.r.State().Foreign; !errors.Is(err, xdp.ErrBefore) || len(f) != 1 || !f[0].First || f[0].Tag != "second" || len(f[0].Pods) != 1 {
			t.Errorf("a program that is back: %v, %+v", err, f)
		}
	}
	if got := a.r.State().Drift["order"]; got != 1 {
		t.Errorf("it was put in front %d times", got)
	}
	a.look()
	if err := a.r.State().Err; !errors.Is(err, xdp.ErrBefore) {
		t.Errorf("a look at what is known: %v", err)
	}
	a.Must(errors.Join(first.Close(), second.Close()))
	a.Must(a.apply())
}

// TestWatchAsksForCommit runs as an agent does.
func TestWatchAsksForCommit(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	prompted := make(chan struct{}, 1)
	r, err := xdp.New(xdp.Options{
		Dataplane: a.kernel, Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{a.index} },
		OnChange: func() { prompted <- struct{}{} },
	})
	a.Must(err)
	b := a.Pods["b"]
	changes := renderer.Changes{Resync: true}
	changes.Render(api.PodID{Namespace: "net", Name: "b"}, renderer.PodConfig{IPs: []netip.Addr{b.V4, b.V6}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
	a.Must(wires.Inside(a.Node, func() error { return r.Apply(t.Context(), changes) }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wires.Inside(a.Node, func() error { return r.Watch(ctx) }) }()
	a.onLink(link.Link.Detach)
	<-prompted // the test's deadline ends what hangs
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	a.Must(wires.Inside(a.Node, func() error { return r.Apply(t.Context(), renderer.Changes{}) }))
	a.Can(false, "repaired", "a", "b", "tcp", 4, 80)
	a.Must(r.Close())
}

// BenchmarkLook is what Watch costs each second, with that many pods.
func BenchmarkLook(b *testing.B) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("mode=%s/pods=%d", mode, n), func(b *testing.B) {
				needKernel(b)
				var names []string
				for i := range n {
					names = append(names, fmt.Sprint(i))
				}
				w := newWired(b, mode, xdp.KernelOptions{PinPath: filepath.Join(wires.BPFFS(b), "sluice")}, names...)
				w.apply(map[string]policy{"0": {toPod: []api.ContivRule{}}})
				w.Must(wires.Inside(w.Node, func() error {
					for b.Loop() {
						w.r.Look()
					}
					return nil
				}))
				if err := w.r.State().Err; err != nil {
					b.Error(err)
				}
			})
		}
	}
}
