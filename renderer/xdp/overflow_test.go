package xdp_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// overflowLab is a lab with pods whose interfaces share a place of the endpoint table. On a node
// where many pods came and went, indexes can be that far apart.
type overflowLab struct {
	*lab
	pods map[int]uint16 // the port that each may send to
}

// between is the distance of two indexes that share a place.
const between = 16384

func newOverflowLab(t *testing.T) *overflowLab {
	t.Helper()
	needKernel(t)
	return &overflowLab{pods: map[int]uint16{}, lab: newLab(t, func(o *labOptions) {
		o.kernel.PinPath = bpffs(t)
		o.options.Interfaces = func(pod api.PodID, _ []netip.Addr) []uint32 {
			n, err := strconv.Atoi(pod.Name)
			if err != nil {
				t.Error(err)
			}
			return []uint32{idOf(n)}
		}
	})}
}

func idOf(pod int) uint32 { return labID + between*uint32(pod) }

func addrOf(pod int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(pod)}) }

// may sets the port to which each of some pods may send; port 0 removes a pod.
func (c *overflowLab) may(changes map[int]uint16) {
	c.t.Helper()
	txn := renderer.Changes{}
	for n, port := range changes {
		pod := api.PodID{Namespace: "lab", Name: strconv.Itoa(n)}
		if port == 0 {
			txn.Remove(pod)
			delete(c.pods, n)
			continue
		}
		c.pods[n] = port
		txn.Render(pod, podOf(addrOf(n), own6, closed, []api.ContivRule{permitTCP(api.Net{}, port, compile.FromPod)}))
	}
	if err := c.r.Apply(c.t.Context(), txn); err != nil {
		c.t.Fatal(err)
	}
	c.holds(c.kernel, fmt.Sprint("after ", changes))
}

// holds checks what each of three pods may send. Packets of removed pods are dropped.
func (c *overflowLab) holds(k *xdp.Kernel, when string) {
	c.t.Helper()
	for n := range 3 {
		for _, port := range []uint16{80, 81} {
			got, err := k.Probe(idOf(n), compile.FromPod, xdp.Frame(tcpFlow(addrOf(n), other4, 4000, port), false))
			if err != nil {
				c.t.Fatal(err)
			}
			if want := c.pods[n] == port; got != want {
				c.t.Errorf("%s: pod %d may send to port %d is %t, want %t", when, n, port, got, want)
			}
		}
	}
}

// TestOverflowTableEndpointsMoveToTheirSlot adds, changes and removes three endpoints that share a
// place.
func TestOverflowTableEndpointsMoveToTheirSlot(t *testing.T) {
	c := newOverflowLab(t)
	c.may(map[int]uint16{0: 80})
	c.may(map[int]uint16{1: 80})
	c.may(map[int]uint16{2: 81})
	c.may(map[int]uint16{0: 0})
	c.may(map[int]uint16{1: 81, 2: 80})
	c.may(map[int]uint16{0: 81})
	if err := c.kernel.ReleasePins(); err != nil {
		t.Fatal(err)
	}
	next := newKernel(t, c.rig.kernel) // as the next process
	c.holds(next, "a start")
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	c.may(map[int]uint16{1: 0})
	c.may(map[int]uint16{2: 0})
	c.may(map[int]uint16{2: 81, 1: 80, 0: 80})
	c.may(map[int]uint16{0: 0, 1: 0, 2: 0})
}
