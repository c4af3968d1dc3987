package gate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// newCable makes a node with two pods, and a folder for pins.
func newCable(t *testing.T) (*wires.Cable, string) {
	t.Helper()
	c := wires.New(t, "a", "b")
	c.Serve("b", 80)
	return c, filepath.Join(wires.BPFFS(t), "sluice")
}

// do calls f at the node.
func do(c *wires.Cable, f func() error) {
	c.T.Helper()
	c.Must(wires.Inside(c.Node, f))
}

func TestGateBlocksBothWaysAndOutlivesProcess(t *testing.T) {
	for name, newGate := range map[string]func(string) *gate.Gate{"tcx": gate.New, "clsact": gate.NewClsact} {
		t.Run(name, func(t *testing.T) {
			c, folder := newCable(t)
			index := uint32(c.Pods["b"].Index)
			g := newGate(folder)
			for range 2 {
				do(c, func() error { return g.Block(index) })
			}
			c.Must(g.Close())
			c.Can(false, "to what is blocked", "a", "b", "tcp", 4, 80)
			c.Can(false, "from what is blocked", "b", "a", "icmp", 6, 0)
			c.Plug(newPod(c)) // another one, which is open
			c.Can(true, "what is not blocked", "a", "c", "icmp", 4, 0)
			next := newGate(folder)
			do(c, func() error {
				got, err := next.Blocked()
				if !slices.Equal(got, []uint32{index}) {
					t.Errorf("blocked is %v, want %d", got, index)
				}
				return err
			})
			for range 2 {
				do(c, func() error { return next.Open(index) })
			}
			c.Can(true, "what was opened", "a", "b", "tcp", 4, 80)
			do(c, func() error { return next.Block(index) })
			do(c, func() error {
				n, err := next.Cleanup()
				if n != 2 {
					t.Errorf("%d programs were removed, want 2", n)
				}
				return err
			})
			c.Can(true, "after the clean-up", "b", "a", "icmp", 4, 0)
			c.Must(next.Close())
		})
	}
}

// newPod adds a third pod.
func newPod(c *wires.Cable) *wires.Host {
	h := *wires.New(c.T, "x").Pods["x"]
	h.Name, h.V4, h.V6 = "c", h.V4.Next().Next().Next(), h.V6.Next().Next().Next()
	do(&wires.Cable{T: c.T, Node: h.NS}, func() error { return wires.Unplug(h.InPod) })
	c.Pods["c"] = &h
	return &h
}

// TestGateOfRemovedInterfaceBlocksNoOther: the pin is left over from an interface whose index
// is reused.
func TestGateOfRemovedInterfaceBlocksNoOther(t *testing.T) {
	c, folder := newCable(t)
	b := c.Pods["b"]
	index := uint32(b.Index)
	g := gate.New(folder)
	do(c, func() error { return g.Block(index) })
	do(c, func() error { return wires.Unplug(b.Index) })
	c.PlugAs(b, int(index))
	c.Can(true, "the next interface with the index", "b", "a", "icmp", 4, 0)
	do(c, func() error {
		got, err := g.Blocked()
		if len(got) > 0 {
			t.Errorf("blocked is %v", got)
		}
		return err
	})
	do(c, func() error { return g.Block(index) })
	c.Can(false, "what is blocked anew", "b", "a", "icmp", 4, 0)
}

// TestGateIsSharedByManyProcesses lets several gates block and inspect concurrently.
func TestGateIsSharedByManyProcesses(t *testing.T) {
	c, folder := newCable(t)
	index := uint32(c.Pods["b"].Index)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			g := gate.New(folder)
			for range 8 {
				if err := wires.Inside(c.Node, func() error { return g.Block(index) }); err != nil {
					t.Error(err)
				}
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c.Can(false, "what is blocked", "b", "a", "icmp", 4, 0)
	do(c, func() error { return gate.New(folder).Open(index) })
	c.Can(true, "what was opened", "b", "a", "icmp", 4, 0)
}

func TestGateRefusesFoldersOfOtherUsers(t *testing.T) {
	c, folder := newCable(t)
	c.Must(os.Mkdir(folder, 0o755))
	for folder, want := range map[string]string{folder: "root's alone", t.TempDir(): "is not in a bpf file system"} {
		do(c, func() error {
			if err := gate.New(folder).Block(uint32(c.Pods["b"].Index)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("folder %s: %v, want %q", folder, err, want)
			}
			return nil
		})
	}
}
