package bench

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
)

// manyBlocks is the policy on which the incumbent broke down: one pod, CIDRs with
// five holes each, 20 ports that are not neighbours.
func manyBlocks(cidrs int) *networkingv1.NetworkPolicy {
	r := rand.New(rand.NewPCG(3, 1))
	np := ingress("ns-0", "blocks", matchLabels("app", "exposed"), networkingv1.NetworkPolicyPeer{}, 1)
	rule := &np.Spec.Ingress[0]
	rule.From, rule.Ports = nil, nil
	for _, high := range r.Perm(200 * 256)[:cidrs] {
		block := &networkingv1.IPBlock{CIDR: fmt.Sprintf("%d.%d.0.0/16", 20+high>>8, high&255)}
		for _, third := range r.Perm(256)[:5] {
			block.Except = append(block.Except, fmt.Sprintf("%d.%d.%d.0/24", 20+high>>8, high&255, third))
		}
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	for i, port := range r.Perm(3000)[:20] {
		rule.Ports = append(rule.Ports, tcp(int32(1+10*port+i%5)))
	}
	return np
}

// minimalPrefixes counts the prefixes that the blocks come to when holes are cut out.
func minimalPrefixes(np *networkingv1.NetworkPolicy) int {
	n := 0
	for _, peer := range np.Spec.Ingress[0].From {
		var holes []netip.Prefix
		for _, e := range peer.IPBlock.Except {
			holes = append(holes, netip.MustParsePrefix(e))
		}
		n += split(netip.MustParsePrefix(peer.IPBlock.CIDR), holes)
	}
	return n
}

// split counts the prefixes of p without holes that lie in it and are smaller.
func split(p netip.Prefix, holes []netip.Prefix) int {
	var inside []netip.Prefix
	for _, h := range holes {
		switch {
		case h == p:
			return 0
		case p.Contains(h.Addr()):
			inside = append(inside, h)
		}
	}
	if len(inside) == 0 {
		return 1
	}
	bytes := p.Addr().As4()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	return split(netip.PrefixFrom(p.Addr(), p.Bits()+1), inside) +
		split(netip.PrefixFrom(netip.AddrFrom4(bytes), p.Bits()+1), inside)
}

// blocksWorld is a small cluster with the pod that is exposed.
func blocksWorld() world {
	w := shape{pods: 1000, policies: 100, local: 100}.world()
	w.apply(putting(pod("ns-0", "exposed", 0, podIP(0, 30_000), "app", "exposed")))
	return w
}

// BenchmarkManyBlocks measures the event that brings the policy; that it goes again
// in between is not counted.
func BenchmarkManyBlocks(b *testing.B) {
	for _, cidrs := range []int{100, 1000} {
		for _, k := range subjects {
			b.Run(fmt.Sprintf("%d/add/%s", cidrs, k), func(b *testing.B) { addBlocks(b, manyBlocks(cidrs), k) })
		}
	}
}

func addBlocks(b *testing.B, np *networkingv1.NetworkPolicy, k kind) {
	x := running(b, k)
	x.apply(blocksWorld().resync(b))
	without := x.size()
	add, remove := putting(np).changes(b), removing(np).changes(b)
	m := newMeter(b)
	m.reset()
	for i := 0; b.Loop(); i++ {
		if i > 0 {
			m.pause()
			x.apply(remove)
			m.resume()
		}
		m.event(func() { x.apply(add) })
	}
	m.stop()
	m.report(b.N)
	for unit, n := range x.size() {
		b.ReportMetric(n-without[unit], unit)
	}
	b.ReportMetric(float64(20*minimalPrefixes(np)), "expanded-rules")
	w := blocksWorld()
	w.apply(putting(np))
	x.check(b, w, np)
}

// BenchmarkManyBlocksThenEvent measures local pods that have nothing to do with the
// policy, while it is there.
func BenchmarkManyBlocksThenEvent(b *testing.B) {
	for _, k := range subjects {
		b.Run(string(k), func(b *testing.B) {
			np, other := manyBlocks(1000), pod("ns-0", "other", 0, podIP(0, 30_001), "app", "a0", "role", "r0")
			x := running(b, k)
			x.apply(blocksWorld().resync(b))
			x.apply(putting(np).changes(b))
			in := [2]model.Changes{putting(other).changes(b), removing(other).changes(b)}
			i := alternate(b, x, in)
			w := blocksWorld()
			w.apply(putting(np))
			if i%2 == 1 {
				w.apply(putting(other))
			}
			x.check(b, w, np, other)
		})
	}
}
