package xdp_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// nthFlow is a flow from the pod, of one of many ports and addresses.
func nthFlow(i int) api.Flow {
	dst := friend4.As4()
	dst[3] += byte(i >> 14)
	f := tcpFlow(own4, friend4, uint16(1024+i&(1<<14-1)), 80)
	f.Dst = netip.AddrFrom4(dst)
	return f
}

// tableLab has a pod with permitted egress and denied ingress, and a connection table of the given
// size.
func tableLab(t *testing.T, newLab makeLab, places int) *lab {
	t.Helper()
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = places })
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	return l
}

// answered counts flows whose answers pass.
func (l *lab) answered(first, n int) (passed int) {
	l.t.Helper()
	for i := range n {
		if l.send(compile.ToPod, flags(xdp.Frame(nthFlow(first+i), true), ack)) {
			passed++
		}
	}
	return passed
}

func (l *lab) open(first, n int) {
	l.t.Helper()
	for i := range n {
		l.want(true, "a new flow", compile.FromPod, xdp.Frame(nthFlow(first+i), false))
	}
}

// TestConnectionTableNotFullEvictsFew: both buckets of a flow must be full of others.
// SLUICE_LONG=1 has the table that nodes have.
func TestConnectionTableNotFullEvictsFew(t *testing.T) {
	everywhere(t, testConnectionTableNotFullEvictsFew)
}

func testConnectionTableNotFullEvictsFew(t *testing.T, newLab makeLab) {
	tables := []struct{ flows, places, most int }{{256, 1024, 3}, {512, 1024, 12}}
	if renderertest.Whole() {
		tables = append(tables, struct{ flows, places, most int }{1 << 16, xdp.DefaultFlows, 40}, struct{ flows, places, most int }{1 << 17, xdp.DefaultFlows, 800})
	}
	for _, c := range tables {
		l := tableLab(t, newLab, c.places)
		l.open(0, c.flows)
		forgotten := c.flows - l.answered(0, c.flows)
		t.Logf("%d of %d flows are forgotten with %d places", forgotten, c.flows, c.places)
		if forgotten > c.most {
			t.Errorf("want %d at most", c.most)
		}
	}
}

// TestConnectionTableKeepsAnsweredFlowsInFlood: what was never answered is forgotten first, and a
// flow that went quiet before one that did not.
func TestConnectionTableKeepsAnsweredFlowsInFlood(t *testing.T) {
	everywhere(t, testConnectionTableKeepsAnsweredFlowsInFlood)
}

func testConnectionTableKeepsAnsweredFlowsInFlood(t *testing.T, newLab makeLab) {
	// Both buckets of a flow of the flood can be one, and full of answered flows: in a table of
	// 4096 places once in about 10 000 runs.
	const known, flood, places = 100, 40000, 4096
	l := tableLab(t, newLab, places)
	l.open(0, known)
	if got := l.answered(0, known); got != known {
		t.Fatalf("%d of %d flows are answered at first", got, known)
	}
	l.open(known, flood)
	if got := l.answered(0, known); got != known {
		t.Errorf("%d of %d flows are answered behind a flood of %d", got, known, flood)
	}
	if n := l.entries(); n < places-100 {
		t.Errorf("%d of %d places are taken behind a flood", n, places)
	}
}

// TestConnectionTableReadsOneFlowDuringWrites has two processors write flows to a small table, and
// a third query flows that do not exist, and an open one.
func TestConnectionTableReadsOneFlowDuringWrites(t *testing.T) {
	everywhere(t, testConnectionTableReadsOneFlowDuringWrites)
}

func testConnectionTableReadsOneFlowDuringWrites(t *testing.T, newLab makeLab) {
	rounds := renderertest.Extent(400, 4000, 4000)
	l := tableLab(t, newLab, 16)
	open := tcpFlow(own4, friend4, 999, 443)
	l.want(true, "a flow", compile.FromPod, xdp.Frame(open, false))
	l.want(true, "its answer", compile.ToPod, xdp.Frame(open, true))
	probe := func(dir compile.Direction, frame []byte) bool {
		ok, err := l.plane.Probe(labID, dir, frame)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	var writers sync.WaitGroup
	var done atomic.Bool
	for odd := range 2 {
		writers.Go(func() {
			for i := range rounds {
				if !probe(compile.FromPod, xdp.Frame(nthFlow(i*4+odd), false)) {
					t.Error("a new flow is dropped")
				}
			}
		})
	}
	writers.Go(func() {
		for i := 0; !done.Load(); i++ {
			if probe(compile.ToPod, flags(xdp.Frame(nthFlow(i%rounds*4+2), true), ack)) {
				t.Error("an answer of what nobody began passes")
			}
			if !probe(compile.ToPod, flags(xdp.Frame(open, true), ack)) {
				t.Error("an answer of a flow that is open is dropped")
			}
			if i >= rounds {
				done.Store(true)
			}
		}
	})
	writers.Wait()
}

// TestConnectionTableComparesWholeFlows has answers that differ from it in one thing.
func TestConnectionTableComparesWholeFlows(t *testing.T) {
	everywhere(t, testConnectionTableComparesWholeFlows)
}

func testConnectionTableComparesWholeFlows(t *testing.T, newLab makeLab) {
	l := tableLab(t, newLab, 64)
	f := nthFlow(0)
	l.want(true, "a flow", compile.FromPod, xdp.Frame(f, false))
	for what, other := range map[string]api.Flow{
		"another port of the other end": {Src: f.Src, Dst: f.Dst, Protocol: f.Protocol, SrcPort: f.SrcPort, DstPort: 81},
		"another port of the pod":       {Src: f.Src, Dst: f.Dst, Protocol: f.Protocol, SrcPort: f.SrcPort + 1, DstPort: 80},
		"another protocol":              {Src: f.Src, Dst: f.Dst, Protocol: api.UDP, SrcPort: f.SrcPort, DstPort: 80},
		"another address":               {Src: f.Src, Dst: other4, Protocol: f.Protocol, SrcPort: f.SrcPort, DstPort: 80},
		"ports the other way round":     {Src: f.Src, Dst: f.Dst, Protocol: f.Protocol, SrcPort: 80, DstPort: f.SrcPort},
	} {
		frame := xdp.Frame(other, true)
		if other.Protocol == api.TCP {
			flags(frame, ack)
		}
		l.want(false, what, compile.ToPod, frame)
	}
	l.want(true, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
}

// TestConnectionTableDistinguishesFlowsOfBucket queries flows that do not exist in a table of two
// buckets, so that many are looked up in the bucket of an existing one.
func TestConnectionTableDistinguishesFlowsOfBucket(t *testing.T) {
	everywhere(t, testConnectionTableDistinguishesFlowsOfBucket)
}

func testConnectionTableDistinguishesFlowsOfBucket(t *testing.T, newLab makeLab) {
	for _, f := range []api.Flow{tcpFlow(own4, friend4, 4000, 80), tcpFlow(own6, friend6, 4000, 80)} {
		l := tableLab(t, newLab, 8)
		changes := renderer.Changes{}
		changes.Render(api.PodID{Namespace: "lab", Name: "other"}, renderer.PodConfig{
			IPs: []netip.Addr{other4, other6}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil), Ingress: renderer.NewRuleList([]api.ContivRule{{Action: api.Permit}, {}}, nil),
		})
		if err := l.r.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		l.want(true, "a flow", compile.FromPod, xdp.Frame(f, false))
		answer := func(of api.Flow) []byte { return flags(xdp.Frame(of, true), ack) }
		ofOther := f
		if ofOther.Src = other4; f.Src.Is6() {
			ofOther.Src = other6
		}
		if ok, err := l.plane.Probe(labID+1, compile.ToPod, answer(ofOther)); err != nil || ok {
			t.Errorf("an answer to another pod: permitted is %v, %v", ok, err)
		}
		for n := range uint16(24) {
			ports := f
			ports.SrcPort += n + 1
			l.want(false, "another port of the pod", compile.ToPod, answer(ports))
			ports = f
			ports.DstPort += n + 1
			l.want(false, "another port of the other end", compile.ToPod, answer(ports))
			for i := range f.Dst.AsSlice() {
				b := f.Dst.AsSlice()
				b[i] ^= byte(n + 1)
				other := f
				other.Dst, _ = netip.AddrFromSlice(b)
				l.want(false, "another address", compile.ToPod, answer(other))
			}
		}
		l.want(true, "its answer", compile.ToPod, answer(f))
	}
}
