package xdp_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// neighbour is another pod on the node of a lab, at the interface behind that of the lab's pod.
var (
	neighbour  = api.PodID{Namespace: "lab", Name: "neighbour"}
	neighbour4 = netip.MustParseAddr("10.0.0.2")
)

// sharesLab has two pods with permitted egress and permitted ingress to UDP port 53, and a
// connection table of the given size.
func sharesLab(t *testing.T, places int) *lab {
	t.Helper()
	l := newLab(t, func(o *labOptions) {
		o.kernel.Flows = places
		o.options.Interfaces = func(pod api.PodID, _ []netip.Addr) []uint32 {
			return []uint32{labID + uint32(slices.Index([]api.PodID{labPod, neighbour, {Namespace: "lab", Name: "third"}}, pod))}
		}
	})
	changes := renderer.Changes{Resync: true}
	list := func(rules ...api.ContivRule) *renderer.RuleList {
		return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	}
	for pod, ip := range map[api.PodID]netip.Addr{labPod: own4, neighbour: neighbour4} {
		changes.Render(pod, renderer.PodConfig{IPs: []netip.Addr{ip}, Ingress: list(api.ContivRule{Action: api.Permit, Protocol: api.TCP}, api.ContivRule{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)}),
			Egress: list(api.ContivRule{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)})})
	}
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	return l
}

// of moves a flow of the lab's pod to its neighbour.
func of(f api.Flow) api.Flow {
	if f.Src == own4 {
		f.Src = neighbour4
	} else {
		f.Dst = neighbour4
	}
	return f
}

// floods opens so many answered flows of the neighbour.
func (l *lab) floods(n int, flow func(i int) api.Flow, begins, answers compile.Direction) {
	l.t.Helper()
	for i := range n {
		f := of(flow(i))
		if ok, err := l.kernel.Probe(labID+1, begins, xdp.Frame(f, false)); err != nil || !ok {
			l.t.Fatalf("flow %d of a flood: permitted is %t, %v", i, ok, err)
		}
		frame := xdp.Frame(f, true)
		if f.Protocol == api.TCP {
			flags(frame, ack)
		}
		if _, err := l.kernel.Probe(labID+1, answers, frame); err != nil { // it is dropped if the flow is refused
			l.t.Fatal(err)
		}
	}
}

// nthFromOutside is a flow to the pod.
func nthFromOutside(i int) api.Flow {
	return udpFlow(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), own4, 4000, 53)
}

// TestSharesProtectConnectionsInFlood floods the table from inside and from outside, with
// flows that are answered.
func TestSharesProtectConnectionsInFlood(t *testing.T) {
	const known, places = 300, 4096
	flood := renderertest.Extent(8000, 20000, 100000)
	for name, floods := range map[string]func(l *lab){
		"from inside":  func(l *lab) { l.floods(flood, nthFlow, compile.FromPod, compile.ToPod) },
		"from outside": func(l *lab) { l.floods(flood, nthFromOutside, compile.ToPod, compile.FromPod) },
	} {
		t.Run(name, func(t *testing.T) {
			l := sharesLab(t, places)
			l.open(0, known)
			if got := l.answered(0, known); got != known {
				t.Fatalf("%d of %d connections are answered at first", got, known)
			}
			floods(l)
			if got := l.answered(0, known); got != known {
				t.Errorf("%d of %d connections are answered behind a flood of another pod", got, known)
			}
			l.sharesAreRight()
			l.open(known, known)
			if got := l.answered(known, known); got != known {
				t.Errorf("%d of %d connections that begin behind a flood are answered", got, known)
			}
			floods(l)
			if got := l.answered(0, 2*known); got != 2*known {
				t.Errorf("%d of %d connections are answered behind a second flood", got, 2*known)
			}
			l.sharesAreRight()
		})
	}
}

// TestSharesProtectFlowsFromEndpointsOverShare floods buckets with flows of a pod that has more
// than its share: a pod within its share keeps its connections.
func TestSharesProtectFlowsFromEndpointsOverShare(t *testing.T) {
	const places, share = 16, 5
	l := sharesLab(t, places)
	changes := renderer.Changes{}
	changes.Render(api.PodID{Namespace: "lab", Name: "third"}, renderer.PodConfig{IPs: []netip.Addr{other4}})
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	for round := range renderertest.Extent(120, 400, 4000) {
		if err := l.kernel.ForgetFlows(); err != nil {
			t.Fatal(err)
		}
		l.floods(4*places, nthFlow, compile.FromPod, compile.ToPod)
		first := round * share
		l.open(first, share)
		var known []int
		for i := first; i < first+share; i++ { // one may have taken the place of another one of its own
			if l.answered(i, 1) == 1 {
				known = append(known, i)
			}
		}
		l.floods(6*places, nthFlow, compile.FromPod, compile.ToPod)
		for _, i := range known {
			if l.answered(i, 1) != 1 {
				t.Fatalf("round %d: a pod within its share lost a connection to one that has more", round)
			}
		}
	}
}

// TestSharesOfOnlyPodAreWholeTable, and a part of it as soon as there is another one.
func TestSharesOfOnlyPodAreWholeTable(t *testing.T) {
	l := tableLab(t, newLab, 1024)
	if got := l.kernel.FlowShare(); got != 1024 {
		t.Errorf("the share of one pod is %d places of 1024", got)
	}
	changes := renderer.Changes{}
	changes.Render(neighbour, renderer.PodConfig{IPs: []netip.Addr{neighbour4}})
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if got := l.kernel.FlowShare(); got != 512 {
		t.Errorf("the share of one of two pods is %d places of 1024", got)
	}
	changes = renderer.Changes{}
	changes.Remove(neighbour)
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if got := l.kernel.FlowShare(); got != 1024 {
		t.Errorf("the share of one pod that is left is %d places of 1024", got)
	}
}

// TestSharesAreRecountedAtStart: the table of a process before may have been another one.
func TestSharesAreRecountedAtStart(t *testing.T) {
	l := sharesLab(t, 4096)
	l.open(0, 100)
	if err := l.kernel.MiscountFlows(labID, 70000); err != nil {
		t.Fatal(err)
	}
	l.sharesAreRight()
}

// sharesAreRight checks that what endpoints have is what is counted.
func (l *lab) sharesAreRight() {
	l.t.Helper()
	for _, id := range []uint32{labID, labID + 1} {
		counted, there, err := l.kernel.FlowsOf(id)
		if err != nil || counted != there || there == 0 {
			l.t.Errorf("endpoint %d has %d flows in the table, %d are counted, %v", id, there, counted, err)
		}
	}
}

// TestSharesProtectFragments floods the ports of fragments, by another pod and in the other
// direction.
func TestSharesProtectFragments(t *testing.T) {
	l := sharesLab(t, 1024)
	out, in := xdp.Frame(udpFlow(own4, friend4, 4000, 53), false), xdp.Frame(udpFlow(friend4, own4, 4000, 53), false)
	later := []byte("hello wo")
	l.want(true, "a first fragment", compile.FromPod, fragment(out, 3, 0, true, nil))
	for i := range uint16(5000) {
		f := xdp.Frame(of(udpFlow(own4, friend4, 4000, 53)), false)
		if ok, err := l.kernel.Probe(labID+1, compile.FromPod, fragment(f, i, 0, true, nil)); err != nil || !ok {
			t.Fatalf("a first fragment of another pod: permitted is %t, %v", ok, err)
		}
		l.want(true, "a first fragment from outside", compile.ToPod, fragment(in, i, 0, true, nil))
	}
	l.want(true, "its later fragment behind a flood", compile.FromPod, fragment(out, 3, 1, false, later))
	for i := range uint16(40) { // of packets that follow each other, all are known
		l.want(true, "a first fragment", compile.FromPod, fragment(out, 0x1000+i, 0, true, nil))
	}
	for i := range uint16(40) {
		l.want(true, "one of 40 packets that follow each other", compile.FromPod, fragment(out, 0x1000+i, 1, false, later))
	}
	if n, err := l.kernel.FragmentCount(); err != nil || n > 3*64 {
		t.Errorf("there are ports of %d fragments, %v, want 64 of each endpoint and direction at most", n, err)
	}
	changes := renderer.Changes{}
	changes.Remove(labPod)
	changes.Remove(neighbour)
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if n, err := l.kernel.FragmentCount(); err != nil || n != 0 {
		t.Errorf("there are ports of %d fragments of pods that are gone, %v", n, err)
	}
}

// TestSharesReportEventsOfQuietPods has one noisy pod.
func TestSharesReportEventsOfQuietPods(t *testing.T) {
	onOneProcessor(t)
	l := sharesLab(t, 256)
	noise := xdp.Frame(of(tcpFlow(friend4, own4, 4000, 81)), false)
	quiet := tcpFlow(friend4, own4, 4001, 81)
	got := l.eventsOf(xdp.EventFilter{PerSecond: 20}, 21, func() {
		for range 1000 {
			if ok, err := l.kernel.Probe(labID+1, compile.ToPod, noise); err != nil || ok {
				t.Errorf("a packet of a noisy pod: permitted is %t, %v", ok, err)
			}
		}
		l.want(false, "a packet of a quiet pod", compile.ToPod, xdp.Frame(quiet, false))
	})
	for _, e := range got {
		if e.Interface == labID && e.Flow == quiet {
			return
		}
	}
	t.Errorf("of %d events none is of the quiet pod", len(got))
}

// TestTunnelPortsByDefaultAreNoClientPorts: kernels give clients ports from 32768 on, whose
// answers look like packets of a tunnel.
func TestTunnelPortsByDefaultAreNoClientPorts(t *testing.T) {
	for _, port := range xdp.DefaultTunnelPorts {
		if port >= 32768 {
			t.Errorf("answers to clients at port %d would be dropped", port)
		}
	}
}
