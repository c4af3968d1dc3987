package xdp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// audited is a node on which pod b is denied everything, with pins.
type audited struct {
	*wired
	r     *xdp.Renderer
	pins  string
	index uint32
}

func newAudited(t *testing.T, mode xdp.Mode) *audited {
	t.Helper()
	needKernel(t)
	a := &audited{pins: filepath.Join(wires.BPFFS(t), "sluice")}
	a.wired = newWired(t, mode, xdp.KernelOptions{PinPath: a.pins}, "a", "b")
	a.Serve("b", 80)
	b := a.Pods["b"]
	a.index = uint32(b.Index)
	var err error
	a.r, err = xdp.New(xdp.Options{Dataplane: a.kernel, Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{a.index} }})
	a.Must(err)
	changes := renderer.Changes{Resync: true}
	changes.Render(api.PodID{Namespace: "net", Name: "b"}, renderer.PodConfig{IPs: []netip.Addr{b.V4, b.V6}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
	a.Must(wires.Inside(a.Node, func() error { return a.r.Apply(t.Context(), changes) }))
	a.Must(a.apply()) // which takes down what there is
	t.Cleanup(func() { a.Must(a.r.Close()) })
	return a
}

// apply commits nothing, and looks at everything.
func (a *audited) apply() error {
	a.r.AuditNext()
	return wires.Inside(a.Node, func() error { return a.r.Apply(a.T.Context(), renderer.Changes{}) })
}

// onLink does something with the pinned link of the program for packets to the pod.
func (a *audited) onLink(f func(link.Link) error) {
	l, err := link.LoadPinnedLink(a.pin("to_pod"), nil)
	a.Must(err)
	a.Must(errors.Join(f(l), l.Close()))
}

func (a *audited) pin(program string) string {
	return filepath.Join(a.pins, fmt.Sprintf("link_%d_%s", a.index, program))
}

// emptyEndpoints has no endpoint have a record, by the pinned map.
func (a *audited) emptyEndpoints() {
	m, err := ebpf.LoadPinnedMap(filepath.Join(a.pins, "ends"), nil)
	a.Must(err)
	a.Must(errors.Join(m.Put(uint32(0), make([]byte, m.ValueSize())), m.Close()))
}

// pass is a program that permits everything and skips the programs after it.
func pass(t *testing.T, name string) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestAuditRepairsForeignEdits(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	for kind, change := range map[string]func(){
		"program":    func() { a.onLink(func(l link.Link) error { return l.Update(pass(t, "other")) }) },
		"attachment": func() { a.onLink(link.Link.Detach) },
		"pin":        func() { a.Must(errors.Join(os.Remove(a.pin("from_pod")), os.Remove(filepath.Join(a.pins, "mark")))) },
		"policy map": a.emptyEndpoints,
	} {
		before := a.r.State().Drift[kind]
		change()
		a.Must(a.apply())
		if got := a.r.State().Drift[kind]; got <= before {
			t.Errorf("%s: drift is %v", kind, a.r.State().Drift)
		}
		a.Can(false, kind, "a", "b", "tcp", 4, 80)
		a.Can(true, kind, "b", "a", "icmp", 4, 0)
		for _, name := range []string{a.pin("to_pod"), a.pin("from_pod"), filepath.Join(a.pins, "mark"), filepath.Join(a.pins, "ends")} {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		drift := fmt.Sprint(a.r.State().Drift)
		a.Must(a.apply())
		if now := fmt.Sprint(a.r.State().Drift); now != drift {
			t.Errorf("%s: what was repaired is found again: %s, then %s", kind, drift, now)
		}
	}
}

func TestAuditRepairsFilters(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeClsact)
	a.Must(wires.Inside(a.Node, func() error { return xdp.DropFilters(a.index) }))
	a.Can(true, "without filters", "a", "b", "icmp", 4, 0)
	a.Must(a.apply())
	a.Can(false, "after the audit", "a", "b", "icmp", 4, 0)
	if got := a.r.State().Drift["program"]; got != 2 {
		t.Errorf("drift is %v", a.r.State().Drift)
	}
}

// TestAuditNamesProgramsOfOtherPins: what is in sync is what is attached.
func TestAuditNamesProgramsOfOtherPins(t *testing.T) {
	t.Parallel()
	a := newAudited(t, xdp.ModeAuto)
	attach := func(name string, anchor link.Anchor) link.Link {
		p := pass(t, name)
		var l link.Link
		a.Must(wires.Inside(a.Node, func() (err error) {
			l, err = link.AttachTCX(link.TCXOptions{Interface: int(a.index), Program: p, Attach: ebpf.AttachTCXEgress, Anchor: anchor})
			return err
		}))
		return l
	}
	behind := attach("behind", link.Tail())
	a.Must(a.apply())
	if f := a.r.State().Foreign; len(f) > 0 {
		t.Errorf("a program behind is %+v", f)
	}
	sluice := attach("sluice_to_pod", link.Tail())
	for range 2 {
		err := a.apply()
		if !errors.Is(err, xdp.ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("(sluice_to_pod) at interface %d", a.index)) || a.r.State().Err == nil {
			t.Errorf("a program of other pins: %v", err)
		}
	}
	a.Can(false, "meanwhile", "a", "b", "tcp", 4, 80)
	a.Must(errors.Join(sluice.Close(), behind.Close()))
	a.Must(a.apply())
}
