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

// members has addresses join a set and leave it.
func (l *lab) members(set api.SetID, join, leave []netip.Addr) {
	l.t.Helper()
	txn := renderer.Changes{}
	txn.UpdateSet(set, alone(join), alone(leave))
	if err := l.r.Apply(l.t.Context(), txn); err != nil {
		l.t.Fatal(err)
	}
}

func alone(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

type addrs = []netip.Addr

// toSet permits port 80 of the members of a set.
func toSet(set api.SetID) []api.ContivRule {
	return []api.ContivRule{permitTCP(api.SetNet(set), 80, compile.FromPod)}
}

// TestGenerationCutsFlowWhenPeerLeavesSet: nothing but one word of the trie of addresses changes.
func TestGenerationCutsFlowWhenPeerLeavesSet(t *testing.T) {
	everywhere(t, testGenerationCutsFlowWhenPeerLeavesSet)
}

func testGenerationCutsFlowWhenPeerLeavesSet(t *testing.T, newLab makeLab) {
	set := api.NewSetID("peers")
	l := newLab(t)
	l.members(set, addrs{friend4, friend6, other4}, nil)
	l.again(closed, toSet(set))
	for _, friend := range []netip.Addr{friend4, friend6} {
		own := own4
		if friend.Is6() {
			own = own6
		}
		f := tcpFlow(own, friend, 4000, 80)
		l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
		for range 3 { // what the list said is known from the second packet on
			l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
			l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
		}
	}
	l.members(set, nil, addrs{friend4})
	f := tcpFlow(own4, friend4, 4000, 80)
	l.want(false, "an answer of who has left", compile.ToPod, flags(xdp.Frame(f, true), ack))
	l.want(false, "what is sent to who has left", compile.FromPod, flags(xdp.Frame(f, false), ack))
	l.members(set, nil, addrs{friend6})
	l.want(false, "the same of IPv6", compile.ToPod, flags(xdp.Frame(tcpFlow(own6, friend6, 4000, 80), true), ack))
	l.members(set, addrs{friend4}, nil)
	l.want(true, "an answer of who is back", compile.ToPod, flags(xdp.Frame(f, true), ack))
}

// TestGenerationCutsFlowByListOfOtherPod: nothing changes but which lists the pod has.
func TestGenerationCutsFlowByListOfOtherPod(t *testing.T) {
	everywhere(t, testGenerationCutsFlowByListOfOtherPod)
}

func testGenerationCutsFlowByListOfOtherPod(t *testing.T, newLab makeLab) {
	l := newLab(t)
	web := []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)}
	f := tcpFlow(own4, friend4, 4000, 80)
	for i, from := range [][]api.ContivRule{web, closed} {
		txn := renderer.Changes{Resync: i == 0}
		if i == 0 {
			txn.Render(api.PodID{Namespace: "lab", Name: "other"}, podOf(friend4, friend6, closed, closed))
		}
		txn.Render(labPod, podOf(own4, own6, closed, from))
		if err := l.r.Apply(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l.want(i == 0, "the flow", compile.FromPod, flags(xdp.Frame(f, false), ack))
			l.want(i == 0, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
		}
	}
}

// TestGenerationCutsFlowAfterNextPolicyMap commits a stricter policy that needs a larger policy
// map.
func TestGenerationCutsFlowAfterNextPolicyMap(t *testing.T) {
	set := api.NewSetID("peers")
	l := newLab(t)
	l.members(set, addrs{friend4}, nil)
	l.again(closed, toSet(set))
	f := tcpFlow(own4, friend4, 4000, 80)
	for range 2 {
		l.want(true, "the flow", compile.FromPod, flags(xdp.Frame(f, false), ack))
		l.want(true, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
	}
	l.grow(set, addrs{friend4})
	l.want(false, "the flow goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	l.want(false, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
}

// grow changes so many members of a set that the policy map is replaced.
func (l *lab) grow(set api.SetID, leave []netip.Addr) {
	l.t.Helper()
	lines, _ := l.kernel.Size()
	var many []netip.Addr
	for i := range 60000 {
		many = append(many, netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), byte(i * 7)}))
	}
	l.members(set, many, leave)
	if now, _ := l.kernel.Size(); now == lines {
		l.t.Fatalf("the memory has %d lines still", lines)
	}
}

// TestGenerationIgnoresVerdictsOfOtherPolicyMap restores the generation from before the policy
// map was replaced. That is the state during a switch, when a rule has another counter in each
// policy map.
func TestGenerationIgnoresVerdictsOfOtherPolicyMap(t *testing.T) {
	set := api.NewSetID("peers")
	l := newLab(t)
	l.members(set, addrs{friend4}, nil)
	l.again(closed, toSet(set))
	said := func() uint32 {
		l.t.Helper()
		l.want(true, "the flow", compile.FromPod, flags(xdp.Frame(tcpFlow(own4, friend4, 4000, 80), false), ack))
		g, err := l.kernel.CachedGeneration()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	before, generation := said(), l.kernel.Generation()
	if again := said(); again != before {
		t.Fatalf("nothing changed, and what is said is of generation %d, not %d", again, before)
	}
	l.grow(set, nil)
	l.kernel.SetGeneration(generation)
	if after := said(); after == before {
		t.Errorf("what the memory before said is believed, of generation %d", before)
	}
}

// TestGenerationUsesConnectionState checks that packets with a cached verdict are counted by the
// rule that it named.
func TestGenerationUsesConnectionState(t *testing.T) {
	everywhere(t, testGenerationUsesConnectionState)
}

func testGenerationUsesConnectionState(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render(closed, []api.ContivRule{permitTCP(api.Net{}, 81, compile.FromPod), permitTCP(api.Net{}, 80, compile.FromPod)})
	for _, f := range []api.Flow{tcpFlow(own4, friend4, 4000, 80), tcpFlow(own6, friend6, 4000, 80)} {
		l.want(true, "the flow", compile.FromPod, xdp.Frame(f, false))
		for range 10 {
			l.want(true, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
			l.want(true, "the flow", compile.FromPod, flags(xdp.Frame(f, false), ack))
		}
	}
	hits, err := l.plane.Hits(0, 16)
	if err != nil {
		t.Fatal(err)
	}
	var counted []uint64
	for _, n := range hits {
		if n > 0 {
			counted = append(counted, n)
		}
	}
	if len(counted) != 1 || counted[0] != 42 {
		t.Errorf("rules counted %v packets, want all 42 by one", counted)
	}
}

// TestGenerationVerdictIsOfOneSender has an established flow of a pod, whose verdict is known, and
// packets that differ from it in what is no part of a connection.
func TestGenerationVerdictIsOfOneSender(t *testing.T) {
	everywhere(t, testGenerationVerdictIsOfOneSender)
}

func testGenerationVerdictIsOfOneSender(t *testing.T, newLab makeLab) {
	l := newLab(t)
	const tunnel = 4789
	udp := func(n api.Net, source, port uint16) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Src: n, Protocol: api.UDP, SrcPort: api.Port(source), DstPort: api.Port(port)}
	}
	l.render([]api.ContivRule{udp(api.Net{}, tunnel, 6000)}, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)})
	for _, c := range []struct{ own, other, friend netip.Addr }{{own4, other4, friend4}, {own6, other6, friend6}} {
		f, forged := tcpFlow(c.own, c.friend, 4000, 80), tcpFlow(c.other, c.friend, 4000, 80)
		l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
		for range 3 {
			l.want(true, "the flow", compile.FromPod, flags(xdp.Frame(f, false), ack))
			l.want(true, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
			l.want(false, "the same ports from an address that is not the pod's", compile.FromPod, flags(xdp.Frame(forged, false), ack))
		}
		in := udpFlow(c.friend, c.own, tunnel, 6000)
		for range 3 {
			l.want(true, "what comes from the port of a tunnel", compile.ToPod, xdp.Frame(in, false))
			l.want(false, "an answer that a node would decapsulate", compile.FromPod, xdp.Frame(in, true))
		}
	}
}

// TestCommitAppliesToEveryLaterPacket has packets of one flow run all the time on
// other processors, which note what the list said to them, while the list changes.
func TestCommitAppliesToEveryLaterPacket(t *testing.T) {
	everywhere(t, testCommitAppliesToEveryLaterPacket)
}

func testCommitAppliesToEveryLaterPacket(t *testing.T, newLab makeLab) {
	rounds := renderertest.Extent(40, 240, 240)
	set := api.NewSetID("peers")
	l := newLab(t)
	l.members(set, addrs{friend4, friend6}, nil)
	l.again(closed, toSet(set))
	type packet struct {
		dir   compile.Direction
		frame []byte
	}
	var packets []packet
	for _, f := range []api.Flow{tcpFlow(own4, friend4, 4000, 80), tcpFlow(own6, friend6, 4000, 80)} {
		packets = append(packets, packet{compile.FromPod, flags(xdp.Frame(f, false), ack)}, packet{compile.ToPod, flags(xdp.Frame(f, true), ack)})
	}
	var others sync.WaitGroup
	var done atomic.Bool
	for _, p := range packets {
		others.Go(func() {
			for !done.Load() {
				if _, err := l.plane.Probe(labID, p.dir, p.frame); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range rounds {
		switch i % 4 {
		case 0:
			l.members(set, nil, addrs{friend4, friend6})
		case 1:
			l.members(set, addrs{friend4, friend6}, nil)
		case 2:
			l.again(closed, closed)
		case 3:
			l.again(closed, toSet(set))
		}
		permitted := i%2 == 1
		for _, p := range packets {
			l.want(permitted, "a packet of the flow", p.dir, p.frame)
		}
	}
	done.Store(true)
	others.Wait()
}

// again changes the pod's lists, as a change and not from the beginning.
func (l *lab) again(toPod, fromPod []api.ContivRule) {
	l.t.Helper()
	txn := renderer.Changes{}
	txn.Render(labPod, podOf(own4, own6, toPod, fromPod))
	if err := l.r.Apply(l.t.Context(), txn); err != nil {
		l.t.Fatal(err)
	}
}

func podOf(ip4, ip6 netip.Addr, toPod, fromPod []api.ContivRule) renderer.PodConfig {
	return renderer.PodConfig{
		IPs: []netip.Addr{ip4, ip6}, Egress: renderer.NewRuleList(append(toPod, api.ContivRule{}), nil), Ingress: renderer.NewRuleList(append(fromPod, api.ContivRule{}), nil),
	}
}
