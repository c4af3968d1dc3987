// Package classifytest has a reference implementation of the classifier, and rules for benchmarks.
package classifytest

import (
	"math/rand/v2"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
)

// flagSYN is the TCP flag of the first packet of a connection.
const flagSYN = 1 << 1

// Scan is the reference implementation: it checks the rules one after the other, as the semantics
// are defined.
func Scan(rules []classify.Rule, t *classify.Tuple) uint32 {
	for i, r := range rules {
		if matches(r, t) {
			return uint32(i)
		}
	}
	return classify.NoRule
}

func matches(r classify.Rule, t *classify.Tuple) bool {
	if !r.Src.Contains(t.Src) || !r.Dst.Contains(t.Dst) {
		return false
	}
	if r.Protocol == api.AnyProtocol {
		return true
	}
	if r.Protocol != t.Protocol {
		return false
	}
	if t.Fragment {
		return true
	}
	if r.Protocol == api.TCP && t.Flags&r.FlagsMask != r.FlagsValue {
		return false
	}
	return r.SrcPorts.First <= t.SrcPort && t.SrcPort <= r.SrcPorts.Last && r.DstPorts.First <= t.DstPort && t.DstPort <= r.DstPorts.Last
}

// PolicyRules returns rules that resemble network policies: mostly single addresses and single
// ports, some blocks, some ranges, any destination.
func PolicyRules(n int) ([]classify.Rule, []classify.Tuple) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	rules, packets := make([]classify.Rule, n), make([]classify.Tuple, 0, n)
	for i := range rules {
		addr := netip.AddrFrom4([4]byte{10, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
		bits, ports := 32, classify.Range{First: 0, Last: 65535}
		if rng.IntN(100) < 15 {
			bits = 16 + rng.IntN(13)
		}
		p, x := uint16(rng.IntN(60000)), rng.IntN(100)
		switch {
		case x < 85:
			ports = classify.Range{First: p % 100, Last: p % 100}
		case x < 95:
			ports = classify.Range{First: p, Last: p + 1000}
		}
		rules[i] = classify.Rule{
			Action: classify.PermitReflect, Src: netip.PrefixFrom(addr, bits).Masked(), Dst: netip.MustParsePrefix("0.0.0.0/0"),
			Protocol: api.TCP, SrcPorts: classify.Range{First: 0, Last: 65535}, DstPorts: ports,
		}
		packets = append(packets, classify.Tuple{
			Src: addr, Dst: netip.MustParseAddr("10.200.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: ports.First, Flags: flagSYN,
		})
	}
	rng.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	return rules, packets
}
