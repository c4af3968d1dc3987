package attacks

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// quoting returns an ICMP error about a packet, from the pod or, by from, from another end.
func (w *world) quoting(src, dst netip.Addr, quoted []byte) []byte {
	kind := map[int]byte{4: 3, 6: 1}[w.family]
	return w.ip(packet{src: src, dst: dst, protocol: w.icmpProtocol(), body: w.icmp(src, dst, kind, 3, append(make([]byte, 4), quoted[14:]...)...)})
}

// TestICMPErrorsOfPodsGoToTheQuotedSource: a pod cannot send errors about one peer to another host.
func TestICMPErrorsOfPodsGoToTheQuotedSource(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	elsewhere := end{v4: netip.MustParseAddr("192.0.2.9"), v6: netip.MustParseAddr("2001:db8::9")}
	for _, w.family = range []int{4, 6} {
		peer := api.AddrNet(w.addr(w.peer))
		g.enforce(map[string]policy{"a": {toPod: []api.ContivRule{fromNode, {Action: api.Permit, Src: peer}}, fromPod: []api.ContivRule{toNode, {Action: api.Permit, Dst: peer}}}})
		byPeer := w.from(w.peer, func() []byte { return w.ip(packet{protocol: 17, body: w.udp(7)}) })
		g.want(w, "", "about a packet of a peer, to that peer", compile.FromPod, w.quoting(w.addr(w.pod), w.addr(w.peer), byPeer))
		g.want(w, xdp.ReasonError, "about a packet of a peer, to another host", compile.FromPod, w.quoting(w.addr(w.pod), w.addr(elsewhere), byPeer))
		byNode := w.ip(packet{src: w.addr(nodeAddrs), dst: w.addr(w.pod), protocol: 17, body: w.udp(7)})
		g.want(w, "", "about a packet of the node, to the node", compile.FromPod, w.quoting(w.addr(w.pod), w.addr(nodeAddrs), byNode))
		g.want(w, xdp.ReasonError, "about a packet of the node, to another host", compile.FromPod, w.quoting(w.addr(w.pod), w.addr(elsewhere), byNode))
	}
}

// TestICMPErrorsQuoteNoData: errors longer than RFC 1812 and RFC 4443 permit do not pass.
func TestICMPErrorsQuoteNoData(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	for _, w.family = range []int{4, 6} {
		peer := api.AddrNet(w.addr(w.peer))
		g.enforce(map[string]policy{"a": {toPod: []api.ContivRule{{Action: api.Permit, Src: peer}}, fromPod: []api.ContivRule{{Action: api.Permit, Dst: peer}}}})
		header := map[int]int{4: 20, 6: 40}[w.family]
		most := map[int]int{4: 576, 6: 1280}[w.family] - header - 8
		about := func(src, dst netip.Addr, length int) []byte {
			return w.ip(packet{src: src, dst: dst, protocol: 17, body: append(w.udp(7), make([]byte, length-header-22)...)})
		}
		for length, want := range map[int]xdp.Reason{most: "", most + 1: xdp.ReasonError, 1400: xdp.ReasonError} {
			g.want(w, want, "from the pod", compile.FromPod, w.quoting(w.addr(w.pod), w.addr(w.peer), about(w.addr(w.peer), w.addr(w.pod), length)))
			g.want(w, want, "to the pod", compile.ToPod, w.from(w.peer, func() []byte {
				return w.quoting(w.addr(w.pod), w.addr(w.peer), about(w.addr(w.peer), w.addr(w.pod), length))
			}))
		}
	}
}

// TestICMPErrorsAboutNodeComeFromNode: only the node itself sends a pod errors about what the pod
// sent to the node. Others could invent such a packet, and reach an isolated pod.
func TestICMPErrorsAboutNodeComeFromNode(t *testing.T) {
	eachStreet(t, func(s *street) {
		x := s.newOutsider()
		for _, family := range []int{4, 6} {
			s.enforce(map[string]policy{"b": {toPod: []api.ContivRule{s.third(), fromNode, {Action: api.Permit, Src: api.AddrNet(family0(x.pod, family)), Protocol: api.UDP, DstPort: api.Port(53)}}, fromPod: []api.ContivRule{toNode}}})
			mark := s.next(x.world, family)
			toNode := x.ip(packet{src: x.addr(s.peer), dst: x.addr(nodeAddrs), protocol: 17, body: x.udp(7)})
			attack := x.quoting(x.addr(x.pod), x.addr(s.peer), toNode)
			last := s.next(x.world, family)
			if s.attackFrom(x.fd, [][]byte{attack}, x.ip(packet{protocol: 17, body: x.udp(53)}), last)[mark] > 0 {
				s.t.Errorf("IPv%d: an error of another host about the node arrives", family)
			}
		}
	})
}

// TestICMPErrorsAboutPeersAreTrue: errors to a pod about a peer that it may talk to both ways come
// from that peer, or belong to a connection of the node's connection tracking.
func TestICMPErrorsAboutPeersAreTrue(t *testing.T) {
	eachStreet(t, func(s *street) {
		x := s.newOutsider()
		for _, family := range []int{4, 6} {
			a := api.AddrNet(family0(s.pod, family))
			s.enforce(map[string]policy{"b": {
				toPod:   []api.ContivRule{s.third(), {Action: api.Permit, Src: a}, {Action: api.Permit, Src: api.AddrNet(family0(x.pod, family)), Protocol: api.UDP, DstPort: api.Port(53)}},
				fromPod: []api.ContivRule{{Action: api.Permit, Dst: a}},
			}})
			about := func(port uint16) []byte { // a packet of b to a
				return x.ip(packet{src: x.addr(s.peer), dst: x.addr(s.pod), protocol: 17, body: slices.Concat(be16(53), be16(port), x.udp(7)[4:])})
			}
			s.family = family
			s.mark++
			asked, port := s.mark, s.port()
			for question := s.ip(packet{protocol: 17, body: s.udp(53)}); ; { // the node tracks it
				s.send(question)
				if s.heard()[asked] > 0 {
					break
				}
			}
			invented := s.next(x.world, family)
			attack := [][]byte{x.quoting(x.addr(x.pod), x.addr(s.peer), about(x.port()))}
			routed := s.next(x.world, family)
			attack = append(attack, x.quoting(x.addr(x.pod), x.addr(s.peer), about(port)))
			last := s.next(x.world, family)
			got := s.attackFrom(x.fd, attack, x.ip(packet{protocol: 17, body: x.udp(53)}), last)
			if got[invented] > 0 {
				s.t.Errorf("IPv%d: an error of another host about a connection that is none arrives", family)
			}
			if got[routed] == 0 {
				s.t.Errorf("IPv%d: an error of a router about a connection does not arrive", family)
			}
		}
	})
}

// TestICMPErrorsThatAreNotTrueUseUpNothing: after many invented errors, true ones pass.
func TestICMPErrorsThatAreNotTrueUseUpNothing(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	for _, w.family = range []int{4, 6} {
		peer := api.AddrNet(w.addr(w.peer))
		g.enforce(map[string]policy{"a": {toPod: []api.ContivRule{fromNode}, fromPod: []api.ContivRule{toNode, {Action: api.Permit, Dst: peer}}}})
		w.mark++
		out := w.ip(packet{protocol: 17, body: w.udp(53)})
		g.want(w, "", "a question", compile.FromPod, out)
		for range 400 {
			g.want(w, xdp.ReasonError, "about a packet to another port", compile.ToPod, w.from(w.peer, func() []byte {
				return w.quoting(w.addr(w.pod), w.addr(w.peer), w.ip(packet{src: w.addr(w.peer), dst: w.addr(w.pod), protocol: 17, body: w.udp(99)}))
			}))
		}
		g.want(w, "", "about the question", compile.ToPod, w.from(w.peer, func() []byte { return w.quoting(w.addr(w.pod), w.addr(w.peer), out) }))
	}
}

// TestICMPTypesAreNoAnswersToEachOther: what a pod asked by one type of ICMP admits its answer, and
// no other type.
func TestICMPTypesAreNoAnswersToEachOther(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	for _, w.family = range []int{4, 6} {
		g.enforce(map[string]policy{"a": {toPod: nothing, fromPod: []api.ContivRule{{Action: api.Permit, Dst: api.AddrNet(w.addr(w.peer))}}}})
		message := func(src, dst netip.Addr, kind byte) []byte {
			return w.ip(packet{src: src, dst: dst, protocol: w.icmpProtocol(), body: w.icmp(src, dst, kind, 0, append(make([]byte, 4), w.payload()...)...)})
		}
		out := func(kind byte) []byte { return message(w.addr(w.pod), w.addr(w.peer), kind) }
		in := func(kind byte) []byte { return message(w.addr(w.peer), w.addr(w.pod), kind) }
		ask, answer := map[int]byte{4: 8, 6: 128}[w.family], map[int]byte{4: 0, 6: 129}[w.family]
		g.want(w, "", "an echo with the identifier 0", compile.FromPod, out(ask))
		g.want(w, "", "its answer", compile.ToPod, in(answer))
		others := map[int][]byte{4: {5, 10, 13, 14, 17, 40, 253}, 6: {100, 127, 130, 131, 132, 138, 139, 140, 143}}[w.family]
		for _, kind := range others {
			g.want(w, xdp.ReasonPolicy, "another type after an echo", compile.ToPod, in(kind))
		}
		pair := map[int][2]byte{4: {13, 14}, 6: {139, 140}}[w.family]
		g.want(w, "", "a question", compile.FromPod, out(pair[0]))
		g.want(w, "", "its answer", compile.ToPod, in(pair[1]))
		g.want(w, xdp.ReasonPolicy, "another answer", compile.ToPod, in(map[int]byte{4: 18, 6: 132}[w.family]))
	}
}

// TestLinkMessagesCarryLittle: ARP and neighbour discovery pass between isolated pods, so they are
// short and few.
func TestLinkMessagesCarryLittle(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	toPod, fromPod := lists(1, w.peer)
	g.apply("a", toPod, fromPod)
	w.family = 4
	arp := w.arp(1, w.pod.mac, w.pod.v4, w.peer.v4)
	g.want(w, "", "ARP, padded", compile.FromPod, append(arp, make([]byte, 60-len(arp))...))
	g.want(w, xdp.ReasonARP, "ARP with a trailer", compile.FromPod, append(arp, make([]byte, 61-len(arp))...))
	w.family = 6
	ask := func(more int) []byte {
		rest := slices.Concat(make([]byte, 4), w.peer.v6.AsSlice(), make([]byte, more))
		for i := 20; i < len(rest); i += 8 {
			rest[i], rest[i+1] = 14, 1 // nonces
		}
		return w.ip(packet{dst: solicited(w.peer.v6), protocol: 58, hops: 255, body: w.icmp(w.pod.v6, solicited(w.peer.v6), 135, 0, rest...)})
	}
	g.want(w, "", "a question with an option", compile.FromPod, ask(8))
	g.want(w, xdp.ReasonNeighbour, "a question with many options", compile.FromPod, ask(112))
	passed := 0
	for range 400 {
		if ok, why := g.probe(labID, compile.FromPod, ask(8)); ok {
			passed++
		} else if why != xdp.ReasonNeighbour {
			t.Fatalf("a question to the link is dropped for %q", why)
		}
	}
	if passed < 80 || passed == 400 {
		t.Errorf("of 400 questions to the link at once %d pass", passed)
	}
}
