package xdp_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// TestListsDistinguishManyClasses has a pod with a port of its own for each of many addresses, more
// than a page of rows, and one whose list names none of them.
func TestListsDistinguishManyClasses(t *testing.T) { everywhere(t, testListsDistinguishManyClasses) }

func testListsDistinguishManyClasses(t *testing.T, newLab makeLab) {
	const classes = 200
	l := newLab(t)
	var toPod, fromPod []api.ContivRule
	address := func(i int, six bool) netip.Addr {
		if six {
			return netip.AddrFrom16([16]byte{0xfd, 1: 9, 13: 1, 15: byte(i)})
		}
		return netip.AddrFrom4([4]byte{10, 9, 1, byte(i)})
	}
	for i := range classes {
		for _, six := range []bool{false, true} {
			toPod = append(toPod, permitTCP(api.AddrNet(address(i, six)), uint16(1000+i), compile.ToPod))
			fromPod = append(fromPod, permitTCP(api.AddrNet(address(i, six)), uint16(2000+i), compile.FromPod))
		}
	}
	list := func(rules []api.ContivRule) *renderer.RuleList {
		return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	}
	changes := renderer.Changes{Resync: true}
	changes.Render(api.PodID{Namespace: "lab", Name: "few"}, renderer.PodConfig{
		IPs: []netip.Addr{other4}, Egress: list([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}),
	})
	changes.Render(labPod, renderer.PodConfig{IPs: []netip.Addr{own4, own6}, Egress: list(toPod), Ingress: list(fromPod)})
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	for i := range classes {
		for _, six := range []bool{false, true} {
			own, a := own4, address(i, six)
			if six {
				own = own6
			}
			l.want(true, "the port of "+a.String(), compile.ToPod, xdp.Frame(tcpFlow(a, own, 1, uint16(1000+i)), false))
			l.want(true, "its port for what the pod sends", compile.FromPod, xdp.Frame(tcpFlow(own, a, 1, uint16(2000+i)), false))
			for _, other := range []int{i - 1, i + 1, i - 64, i + 64} {
				l.want(false, "the port of another address", compile.ToPod, xdp.Frame(tcpFlow(a, own, 1, uint16(1000+other)), false))
				l.want(false, "the port of another address for what the pod sends", compile.FromPod, xdp.Frame(tcpFlow(own, a, 1, uint16(2000+other)), false))
			}
		}
		for _, port := range []uint16{80, uint16(1000 + i)} {
			if ok, err := l.plane.Probe(labID+1, compile.ToPod, xdp.Frame(tcpFlow(address(i, false), other4, 1, port), false)); err != nil || ok {
				t.Errorf("%s to port %d of a pod that does not know it: permitted is %v, %v", address(i, false), port, ok, err)
			}
		}
	}
}

// TestListsCompareWholeAddresses checks that one different bit is another address.
func TestListsCompareWholeAddresses(t *testing.T) { everywhere(t, testListsCompareWholeAddresses) }

func testListsCompareWholeAddresses(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), permitTCP(api.AddrNet(friend6), 80, compile.ToPod)}, nil)
	for _, c := range []struct{ friend, own netip.Addr }{{friend4, own4}, {friend6, own6}} {
		l.want(true, c.friend.String(), compile.ToPod, xdp.Frame(tcpFlow(c.friend, c.own, 1, 80), false))
		for bit := range c.friend.BitLen() {
			b := c.friend.AsSlice()
			b[bit/8] ^= 0x80 >> (bit % 8)
			other, _ := netip.AddrFromSlice(b)
			l.want(false, other.String(), compile.ToPod, xdp.Frame(tcpFlow(other, c.own, 1, 80), false))
		}
	}
}

// TestListsCompareSourcePorts in lists of both directions, and in one of them alone.
func TestListsCompareSourcePorts(t *testing.T) { everywhere(t, testListsCompareSourcePorts) }

func testListsCompareSourcePorts(t *testing.T, newLab makeLab) {
	by := []api.ContivRule{{Action: api.Permit, Protocol: api.TCP, SrcPort: api.PortRange{First: 5000, Last: 5009}, DstPort: api.Port(80)}}
	for _, c := range []struct{ toPod, fromPod []api.ContivRule }{{by, nil}, {nil, by}, {by, closed}, {closed, by}, {by, by}} {
		l := newLab(t)
		l.render(c.toPod, c.fromPod)
		for source := uint16(4998); source < 5012; source++ {
			of := source >= 5000 && source < 5010
			for _, port := range []uint16{79, 80, 81} {
				l.want(c.toPod == nil || of && port == 80 && len(c.toPod) > 0, "to the pod", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, source, port), false))
				l.want(c.fromPod == nil || of && port == 80 && len(c.fromPod) > 0, "from the pod", compile.FromPod, xdp.Frame(tcpFlow(own4, friend4, source, port), false))
			}
		}
	}
}

// TestCommitTakesPodThatEnds: a runtime takes the interface away before the API server says
// that the pod has ended. A pod that never had one waits.
func TestCommitTakesPodThatEnds(t *testing.T) {
	job, late := api.PodID{Namespace: "net", Name: "job"}, api.PodID{Namespace: "net", Name: "late"}
	plugged := map[api.PodID][]uint32{job: {7}}
	r, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 { return plugged[pod] }})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(pods ...api.PodID) error {
		changes := renderer.Changes{Resync: true}
		for i, pod := range pods {
			changes.Render(pod, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
		}
		return r.Apply(t.Context(), changes)
	}
	if err := commit(job); err != nil {
		t.Fatal(err)
	}
	delete(plugged, job)
	for range 2 {
		if err := commit(job); err != nil {
			t.Errorf("a pod whose interface went: %v", err)
		}
		if s := r.State(); len(s.Pending) != 1 || !s.Pending[0].Ends || s.Err != nil {
			t.Errorf("the state is %+v", s)
		}
	}
	if err := commit(job, late); !errors.Is(err, renderer.ErrNoInterface) || strings.Contains(err.Error(), "net/job") {
		t.Errorf("a pod that waits for an interface: %v", err)
	}
	if err := commit(); err != nil {
		t.Error(err)
	}
	if err := commit(job); !errors.Is(err, renderer.ErrNoInterface) {
		t.Errorf("another pod with its name: %v", err)
	}
}
