package xdp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// entries returns how many connections are tracked.
func (l *lab) entries() int {
	l.t.Helper()
	n, err := l.plane.FlowCount()
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func TestConnectionsLetRepliesPass(t *testing.T) { everywhere(t, testConnectionsLetRepliesPass) }

func testConnectionsLetRepliesPass(t *testing.T, newLab makeLab) {
	for _, families := range [][2]int{{4, 4}, {6, 6}} {
		own, friend := own4, friend4
		if families[0] == 6 {
			own, friend = own6, friend6
		}
		for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP, icmpOf(families[0])} {
			t.Run(protocol.String(), func(t *testing.T) {
				l := newLab(t)
				l.render(closed, nil)
				f := api.Flow{Src: own, Dst: friend, Protocol: protocol}
				if protocol.HasPorts() {
					f.SrcPort, f.DstPort = 4000, 53
				}
				l.want(false, "an answer before the question", compile.ToPod, xdp.Frame(f, true))
				l.want(true, "the question", compile.FromPod, xdp.Frame(f, false))
				l.want(true, "the answer", compile.ToPod, xdp.Frame(f, true))
				if protocol != api.UDP {
					l.want(false, "a question the other way with the same ports", compile.ToPod, xdp.Frame(f.Reverse(), false))
				}
				f.DstPort++
				if protocol.HasPorts() {
					l.want(false, "the answer to another question", compile.ToPod, xdp.Frame(f, true))
				}
			})
		}
	}
}

func icmpOf(family int) api.Protocol {
	if family == 6 {
		return api.ICMPv6
	}
	return api.ICMP
}

func TestConnectionsAreNotTrackedForPermittedReplies(t *testing.T) {
	everywhere(t, testConnectionsAreNotTrackedForPermittedReplies)
}

func testConnectionsAreNotTrackedForPermittedReplies(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod)}, nil)
	for port := range uint16(200) {
		l.want(true, "a new flow", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000+port, 80), false))
		l.want(true, "its answer", compile.FromPod, xdp.Frame(tcpFlow(friend4, own4, 4000+port, 80), true))
	}
	if n := l.entries(); n != 0 {
		t.Errorf("flows whose answers pass anyway left %d entries", n)
	}
	l.render([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod)}, closed)
	l.want(true, "a new flow", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
	l.want(true, "its answer", compile.FromPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), true))
	if n := l.entries(); n != 1 {
		t.Errorf("a flow whose answer needs evidence left %d entries, want 1", n)
	}
}

func TestConnectionsAreNotCreatedByDeniedPackets(t *testing.T) {
	everywhere(t, testConnectionsAreNotCreatedByDeniedPackets)
}

func testConnectionsAreNotCreatedByDeniedPackets(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render(closed, closed)
	for port := range uint16(300) {
		for _, f := range []api.Flow{tcpFlow(friend4, own4, 4000+port, 80), udpFlow(friend6, own6, 4000+port, 80)} {
			l.want(false, "a denied packet", compile.ToPod, xdp.Frame(f, false))
			l.want(false, "a denied answer", compile.ToPod, xdp.Frame(f.Reverse(), true))
			l.want(false, "a denied packet from the pod", compile.FromPod, xdp.Frame(f, true))
		}
	}
	if n := l.entries(); n != 0 {
		t.Errorf("denied packets left %d entries", n)
	}
}

func TestConnectionsAreCutByTighterPolicy(t *testing.T) {
	everywhere(t, testConnectionsAreCutByTighterPolicy)
}

func testConnectionsAreCutByTighterPolicy(t *testing.T, newLab makeLab) {
	l := newLab(t)
	web := []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)}
	f := tcpFlow(own4, friend4, 4000, 80)
	l.render(closed, web)
	l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
	l.render(closed, append(web, permitTCP(api.Net{}, 81, compile.FromPod)))
	l.want(true, "something else changed", compile.ToPod, flags(xdp.Frame(f, true), ack))
	l.render(closed, closed)
	l.want(false, "what the pod sends on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	l.want(false, "an answer on its way", compile.ToPod, flags(xdp.Frame(f, true), ack))
}

func TestConnectionsAreKeptOnRequest(t *testing.T) { everywhere(t, testConnectionsAreKeptOnRequest) }

func testConnectionsAreKeptOnRequest(t *testing.T, newLab makeLab) {
	l := newLab(t, func(o *labOptions) { o.options.Keep = true })
	f, server := tcpFlow(own4, friend4, 4000, 80), tcpFlow(friend4, own4, 5000, 443)
	l.render([]api.ContivRule{permitTCP(api.Net{}, 443, compile.ToPod)}, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)})
	l.want(true, "a flow from the pod", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "a flow to the pod", compile.ToPod, xdp.Frame(server, false))
	l.render(closed, closed)
	for what, c := range map[string]struct {
		dir   compile.Direction
		frame []byte
	}{
		"from the pod, on":       {compile.FromPod, flags(xdp.Frame(f, false), ack)},
		"from the pod, answered": {compile.ToPod, flags(xdp.Frame(f, true), ack)},
		"to the pod, on":         {compile.ToPod, flags(xdp.Frame(server, false), ack)},
		"to the pod, answered":   {compile.FromPod, flags(xdp.Frame(server, true), ack)},
	} {
		l.want(true, what, c.dir, c.frame)
	}
	l.want(false, "a new flow", compile.FromPod, xdp.Frame(tcpFlow(own4, friend4, 4001, 80), false))
}

func TestConnectionsAreLearnedMidStreamForAWhile(t *testing.T) {
	everywhere(t, testConnectionsAreLearnedMidStreamForAWhile)
}

func testConnectionsAreLearnedMidStreamForAWhile(t *testing.T, newLab makeLab) {
	for _, learn := range []bool{false, true} {
		l := newLab(t, func(o *labOptions) {
			if learn {
				o.options.Learn = 1 << 40
			}
		})
		l.render(closed, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod), {Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(80)}})
		f := tcpFlow(own4, friend4, 4000, 80)
		l.want(learn, "an answer of a flow that is open already", compile.ToPod, flags(xdp.Frame(f, true), ack))
		l.want(false, "a reset of nothing", compile.ToPod, flags(xdp.Frame(tcpFlow(own4, friend4, 4002, 80), true), ack|rst))
		l.want(false, "an answer of a flow that is not permitted", compile.ToPod, flags(xdp.Frame(tcpFlow(own4, friend4, 4000, 81), true), ack))
		l.want(false, "a new flow", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 80, 4000), false))
		l.want(false, "UDP", compile.ToPod, xdp.Frame(udpFlow(own4, friend4, 4000, 80), true))
	}
}

// errorAbout wraps the start of a packet into an ICMP error that goes to its sender.
func errorAbout(f api.Flow, kind byte) []byte {
	inner := xdp.Frame(f, false)[14:]
	if f.Src.Is6() {
		out := xdp.Frame(api.Flow{Src: friend6, Dst: f.Src, Protocol: api.ICMPv6}, false)
		out[54] = kind
		out[19] += byte(len(inner))
		return append(out, inner...)
	}
	out := xdp.Frame(api.Flow{Src: other4, Dst: f.Src, Protocol: api.ICMP}, false)
	inner = inner[:28] // all that must be quoted
	out[34] = kind
	out[17] += byte(len(inner))
	return append(out, inner...)
}

func TestConnectionsPassRelatedErrors(t *testing.T) { everywhere(t, testConnectionsPassRelatedErrors) }

func testConnectionsPassRelatedErrors(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render(closed, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)})
	l.want(false, "about a packet that the pod may send, and did not", compile.ToPod, errorAbout(tcpFlow(own4, friend4, 4000, 80), 3))
	l.want(false, "the same of IPv6", compile.ToPod, errorAbout(tcpFlow(own6, friend6, 4000, 80), 2))
	l.want(true, "a flow", compile.FromPod, xdp.Frame(tcpFlow(own4, friend4, 4000, 80), false))
	l.want(true, "a flow of IPv6", compile.FromPod, xdp.Frame(tcpFlow(own6, friend6, 4000, 80), false))
	l.want(true, "about a packet that the pod sent", compile.ToPod, errorAbout(tcpFlow(own4, friend4, 4000, 80), 3))
	l.want(true, "the same of IPv6", compile.ToPod, errorAbout(tcpFlow(own6, friend6, 4000, 80), 2))
	l.want(false, "about a packet that it may not send", compile.ToPod, errorAbout(tcpFlow(own4, friend4, 4000, 81), 3))
	l.want(false, "the same of IPv6", compile.ToPod, errorAbout(tcpFlow(own6, friend6, 4000, 81), 2))
	l.want(false, "echo", compile.ToPod, errorAbout(tcpFlow(own4, friend4, 4000, 80), 8))
	forged := errorAbout(tcpFlow(own4, friend4, 4000, 80), 3)
	copy(forged[42+12:], []byte{10, 0, 9, 7}) // a packet of another host
	l.want(false, "about a packet of somebody else", compile.ToPod, forged)
	l.want(false, "that ends in the packet", compile.ToPod, errorAbout(tcpFlow(own4, friend4, 4000, 80), 3)[:60])
	for kind := range 256 { // of a list that permits no ICMP
		four, six := errorAbout(tcpFlow(own4, friend4, 4000, 80), byte(kind)), errorAbout(tcpFlow(own6, friend6, 4000, 80), byte(kind))
		l.want(kind == 3 || kind == 11 || kind == 12, fmt.Sprintf("ICMP of type %d", kind), compile.ToPod, four)
		l.want(kind >= 1 && kind <= 4, fmt.Sprintf("ICMPv6 of type %d", kind), compile.ToPod, six)
		four[14+9], six[14+6] = 58, 1
		l.want(false, fmt.Sprintf("ICMPv6 of type %d in IPv4", kind), compile.ToPod, four)
		l.want(false, fmt.Sprintf("ICMP of type %d in IPv6", kind), compile.ToPod, six)
	}
}

// TestConnectionsKeptAreAnswered answers a flow with packets that a list permits,
// too, so that they do not refresh the connection. The connection was answered, so it lives long.
func TestConnectionsKeptAreAnswered(t *testing.T) { everywhere(t, testConnectionsKeptAreAnswered) }

func testConnectionsKeptAreAnswered(t *testing.T, newLab makeLab) {
	l := newLab(t, func(o *labOptions) { o.options.Keep = true })
	open := []api.ContivRule{{Action: api.Permit}}
	for _, c := range []struct {
		here, there compile.Direction
		f           api.Flow
	}{
		{compile.FromPod, compile.ToPod, tcpFlow(own4, friend4, 4000, 80)},
		{compile.ToPod, compile.FromPod, tcpFlow(friend6, own6, 4000, 80)},
	} {
		l.render(open, open)
		l.want(true, "the flow begins", c.here, xdp.Frame(c.f, false))
		for range 3 {
			l.want(true, "an answer", c.there, flags(xdp.Frame(c.f, true), ack))
			l.want(true, "it goes on", c.here, flags(xdp.Frame(c.f, false), ack))
		}
		if err := l.plane.Age(5 * time.Minute); err != nil {
			t.Fatal(err)
		}
		l.render(closed, closed)
		l.want(true, "it goes on where it is kept", c.here, flags(xdp.Frame(c.f, false), ack))
		l.want(true, "an answer where it is kept", c.there, flags(xdp.Frame(c.f, true), ack))
	}
}

// TestConnectionsWithKeepStayWhileTheySend continues an unanswered flow after its list was closed.
func TestConnectionsWithKeepStayWhileTheySend(t *testing.T) {
	everywhere(t, testConnectionsWithKeepStayWhileTheySend)
}

func testConnectionsWithKeepStayWhileTheySend(t *testing.T, newLab makeLab) {
	l := newLab(t, func(o *labOptions) { o.options.Keep = true })
	f := udpFlow(own4, friend4, 4000, 53)
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
	l.render(closed, closed)
	for range 3 {
		if err := l.plane.Age(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		l.want(true, "it goes on", compile.FromPod, xdp.Frame(f, false))
	}
	if err := l.plane.Age(40 * time.Second); err != nil {
		t.Fatal(err)
	}
	l.want(false, "after silence", compile.FromPod, xdp.Frame(f, false))
}

// TestConnectionsAreNotExtendedByErrors quotes a flow all the time, which sends nothing itself.
func TestConnectionsAreNotExtendedByErrors(t *testing.T) {
	everywhere(t, testConnectionsAreNotExtendedByErrors)
}

func testConnectionsAreNotExtendedByErrors(t *testing.T, newLab makeLab) {
	l := newLab(t)
	f := udpFlow(friend4, own4, 4000, 53)
	l.render([]api.ContivRule{{Action: api.Permit}}, closed)
	l.want(true, "the flow begins", compile.ToPod, xdp.Frame(f, false))
	for range 3 {
		l.want(true, "an error about its answer", compile.ToPod, errorAbout(f.Reverse(), 3))
		if err := l.plane.Age(12 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	l.want(false, "its answer, after its time", compile.FromPod, xdp.Frame(f, true))
	l.want(false, "an error about its answer, after its time", compile.ToPod, errorAbout(f.Reverse(), 3))
}

// TestConnectionTableKeepsBusyEntries marks every entry as being written.
func TestConnectionTableKeepsBusyEntries(t *testing.T) {
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = 8 })
	l.render([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod)}, closed)
	if err := l.kernel.Occupy(3); err != nil {
		t.Fatal(err)
	}
	f := tcpFlow(friend4, own4, 3999, 80)
	l.want(true, "a flow beside places that are written", compile.ToPod, xdp.Frame(f, false))
	l.want(true, "its answer", compile.FromPod, xdp.Frame(f, true))
	if err := l.kernel.Occupy(4); err != nil {
		t.Fatal(err)
	}
	for port := range uint16(50) {
		l.want(true, "a flow that cannot be noted", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000+port, 80), false))
		l.want(false, "its answer", compile.FromPod, xdp.Frame(tcpFlow(friend4, own4, 4000+port, 80), true))
	}
}

// TestConnectionTableDistinguishesProtocols has them meet in a table of two buckets.
func TestConnectionTableDistinguishesProtocols(t *testing.T) {
	everywhere(t, testConnectionTableDistinguishesProtocols)
}

func testConnectionTableDistinguishesProtocols(t *testing.T, newLab makeLab) {
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = 8 })
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	var all []api.Flow
	for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
		f := tcpFlow(own4, friend4, 5060, 5060)
		f.Protocol = p
		all = append(all, f)
		l.want(true, "a flow", compile.FromPod, xdp.Frame(f, false))
	}
	for _, f := range all {
		l.want(true, "its answer", compile.ToPod, xdp.Frame(f, true))
	}
	if n := l.entries(); n != len(all) {
		t.Errorf("%d flows are noted, want %d", n, len(all))
	}
}

// TestConnectionTableReusesEntryOfFlow sends first packets several times, of so many flows that
// some are in their second bucket.
func TestConnectionTableReusesEntryOfFlow(t *testing.T) {
	everywhere(t, testConnectionTableReusesEntryOfFlow)
}

func testConnectionTableReusesEntryOfFlow(t *testing.T, newLab makeLab) {
	const flows = 12
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = 16 })
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	for range 3 {
		for i := range flows {
			l.want(true, "a first packet", compile.FromPod, xdp.Frame(tcpFlow(own4, friend4, uint16(4000+i), 80), false))
		}
	}
	if n := l.entries(); n > flows {
		t.Errorf("%d places are taken by %d flows", n, flows)
	}
}

// TestConnectionIsNotItsOwnReply swaps lists: what was permitted to the pod is denied, and all that
// it sends is permitted. The peer that began a flow may not continue as if the pod had begun it.
func TestConnectionIsNotItsOwnReply(t *testing.T) { everywhere(t, testConnectionIsNotItsOwnReply) }

func testConnectionIsNotItsOwnReply(t *testing.T, newLab makeLab) {
	for _, f := range []api.Flow{tcpFlow(friend4, own4, 4000, 80), tcpFlow(friend6, own6, 4000, 80)} {
		l := newLab(t)
		l.render([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod)}, closed)
		l.want(true, "the flow begins", compile.ToPod, xdp.Frame(f, false))
		l.want(true, "it is answered", compile.FromPod, xdp.Frame(f, true))
		l.render(closed, []api.ContivRule{{Action: api.Permit}})
		on := flags(xdp.Frame(f, false), ack)
		l.want(false, "it goes on", compile.ToPod, on)
		l.want(false, "it goes on, read slowly", compile.ToPod, tagged(on, 1))
	}
}
