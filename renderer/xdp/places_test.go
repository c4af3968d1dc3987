package xdp_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// filters returns the filters of the node's interfaces, with the programs that they run.
func (w *wired) filters() map[string]int {
	w.T.Helper()
	out := map[string]int{}
	w.Must(wires.Inside(w.Node, func() error {
		for _, h := range w.Pods {
			l, err := netlink.LinkByIndex(h.Index)
			if err != nil {
				return err
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				list, err := netlink.FilterList(l, parent)
				if err != nil {
					return err
				}
				for _, f := range list {
					if b, ok := f.(*netlink.BpfFilter); ok {
						out[fmt.Sprintf("%s %x %s", h.Name, parent, b.Name)] = b.Id
					}
				}
			}
		}
		return nil
	}))
	return out
}

// pins are the names of the links that are pinned.
func (w *wired) pins() (out []string) {
	w.T.Helper()
	paths, err := filepath.Glob(filepath.Join(w.options.PinPath, "link_*"))
	w.Must(err)
	for _, p := range paths {
		_, name, _ := strings.Cut(strings.TrimPrefix(filepath.Base(p), "link_"), "_")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// addForeign adds a foreign filter, which returns the same for every packet.
func (w *wired) addForeign(pod string, parent uint32, returns int32) {
	w.T.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, returns), asm.Return()},
	})
	w.Must(err)
	w.T.Cleanup(func() { _ = p.Close() }) // the filter has its own reference
	w.Must(wires.Inside(w.Node, func() error {
		l, err := netlink.LinkByIndex(w.Pods[pod].Index)
		if err == nil {
			err = netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
			}, QdiscType: "clsact"})
		}
		if err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: w.Pods[pod].Index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7,
			},
			Fd: p.FD(), Name: "foreign", DirectAction: true,
		})
	}))
}

// filtered has filters enforce that a may reach b by a protocol.
func filtered(t *testing.T, protocol api.Protocol) (*wired, map[string]policy) {
	t.Helper()
	w := newWired(t, xdp.ModeClsact, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	w.Serve("b", 80)
	policies := map[string]policy{"b": {toPod: w.rules("a", protocol, api.Port(80)), fromPod: closed}}
	w.apply(policies)
	return w, policies
}

func TestFiltersAreTakenOverAndCleanedUp(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w, policies := filtered(t, api.TCP)
	w.addForeign("b", netlink.HANDLE_MIN_EGRESS, -1)
	before := w.filters()
	if len(before) != 5 {
		t.Fatalf("there are filters %v, want 4 of ours and a foreign one", before)
	}
	w.stop()
	w.start()
	w.apply(policies)
	if after := w.filters(); !maps.Equal(before, after) {
		t.Errorf("a start with the same state changes filters %v into %v", before, after)
	}
	policies["b"] = policy{toPod: w.rules("a", api.UDP, api.Port(80)), fromPod: closed}
	w.apply(policies)
	w.Can(true, "a change after the start", "a", "b", "udp", 4, 80)
	w.Can(false, "a change after the start", "a", "b", "tcp", 4, 80)
	w.stop()
	w.Must(wires.Inside(w.Node, func() error {
		if n, err := xdp.Cleanup(w.options.PinPath + "/none"); !errors.Is(err, xdp.ErrNoPins) || n != 4 {
			t.Errorf("without the folder of pins %d filters are removed: %v", n, err)
		}
		_, err := xdp.Cleanup(w.options.PinPath)
		return err
	}))
	if left := slices.Collect(maps.Keys(w.filters())); len(left) != 1 || !strings.HasSuffix(left[0], "foreign") {
		t.Errorf("after the clean-up there are %v, want the foreign one", left)
	}
	w.Can(true, "nothing is enforced any more", "a", "b", "tcp", 4, 80)
	w.start()
}

// TestModeChangesWithoutGap restarts with other modes, while packets are denied.
func TestModeChangesWithoutGap(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b", "c")
	w.Serve("b", 80)
	policies := map[string]policy{"b": {toPod: w.rules("a", api.UDP, api.Port(80)), fromPod: closed}, "c": {fromPod: w.rules("a", api.UDP, api.Port(80))}}
	w.apply(policies)
	counts := []*wires.Count{w.Send("c", "b", 4, 80, false), w.Send("a", "b", 6, 80, true)}
	for _, c := range []struct {
		mode    xdp.Mode
		pins    []string // of each pod
		filters int      // of each pod
	}{
		{xdp.ModeXDP, []string{"to_pod", "xdp_from_pod"}, 0},
		{xdp.ModeAuto, []string{"from_pod", "to_pod"}, 0},
		{xdp.ModeClsact, nil, 2},
		{xdp.ModeAuto, []string{"from_pod", "to_pod"}, 0},
	} {
		w.stop()
		w.options.Mode = c.mode
		w.start()
		w.apply(policies)
		var want []string
		for range w.Pods {
			want = append(want, c.pins...)
		}
		slices.Sort(want)
		if got := w.pins(); !slices.Equal(got, want) || len(w.filters()) != c.filters*len(w.Pods) {
			t.Errorf("mode %s: links %v and filters %v, want %v and %d of each pod", c.mode, got, w.filters(), want, c.filters)
		}
	}
	for i, most := range []int64{0, 4} { // packets in the queue of a driver that begins with XDP are lost
		counts[i].Stop()
		if n := counts[i].Wrong.Load(); n > most {
			t.Errorf("%d of %d packets were treated wrongly, want %d at most", n, counts[i].Sent.Load(), most)
		}
	}
}

// TestFiltersOfOtherVersionStayUntilReplaced starts over a link of a program that this
// version does not have, while packets are denied.
func TestFiltersOfOtherVersionStayUntilReplaced(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	w.Serve("b", 80)
	policies := map[string]policy{"b": {toPod: w.rules("a", api.UDP, api.Port(80)), fromPod: closed}}
	w.apply(policies)
	want := w.pins()
	denied := w.Send("a", "b", 4, 81, false)
	w.stop()
	path := filepath.Join(w.options.PinPath, fmt.Sprintf("link_%d_to_pod", w.Pods["b"].Index))
	w.Must(os.Rename(path, path+"_of_before"))
	w.options.AnySource = true // so that programs of another policy map take over
	w.start()
	w.apply(policies)
	if got := w.pins(); !slices.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
	w.Can(true, "behind the start", "a", "b", "udp", 4, 80)
	w.Right(1, denied)
}

// TestSettingsTakeEffectAtStart starts with other settings of the program, while
// packets are denied.
func TestSettingsTakeEffectAtStart(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w, policies := filtered(t, api.UDP)
	denied, before := w.Send("a", "b", 4, 81, false), w.filters()
	w.stop()
	w.options.AnySource, w.options.Flows = true, 2048
	w.start()
	if w.kernel.StateDigest() != (xdp.StateDigest{}) {
		t.Error("what is enforced by programs of other settings is said to be known")
	}
	w.apply(policies)
	for place, now := range w.filters() {
		if was, ok := before[place]; !ok || was == now {
			t.Errorf("at %s runs program %d, as before", place, now)
		}
	}
	w.Can(true, "with other settings", "a", "b", "udp", 4, 80)
	w.Right(1, denied)
}

// TestCommitIgnoresDisappearingInterfaces commits while interfaces are gone that
// the renderer does not know to be: those of other pods are attached, and no pin stays of pods that
// are removed then.
func TestCommitIgnoresDisappearingInterfaces(t *testing.T) {
	t.Parallel()
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWired(t, mode, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b", "c")
			commit := func(pods ...string) error {
				txn := renderer.Changes{Resync: true}
				for _, name := range pods {
					txn.Render(api.PodID{Namespace: "net", Name: name}, renderer.PodConfig{IPs: []netip.Addr{w.Pods[name].V4}})
				}
				return wires.Inside(w.Node, func() error { return w.r.Apply(t.Context(), txn) })
			}
			gone := func(name string) {
				w.Must(wires.Inside(w.Node, func() error { return wires.Unplug(w.Pods[name].Index) }))
			}
			w.Must(commit("b"))
			pins := w.pins()
			w.Must(commit())
			gone("a") // before it was ever attached
			w.Must(commit("c"))
			gone("c") // when it is attached
			for range 2 {
				if err := commit("a", "b", "c"); !errors.Is(err, renderer.ErrNoInterface) {
					t.Errorf("a Commit for pods that are gone: %v", err)
				}
			}
			ids, err := w.kernel.Attached()
			if err != nil || !slices.Equal(ids, []uint32{uint32(w.Pods["b"].Index)}) {
				t.Errorf("attached are %v, %v", ids, err)
			}
			w.Must(commit("b"))
			if got := w.pins(); !slices.Equal(got, pins) {
				t.Errorf("pins are %v, want %v", got, pins)
			}
		})
	}
}
