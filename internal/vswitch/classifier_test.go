package vswitch

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// scan is the reference: it asks the rules one after the other, as the semantics
// are written down.
func scan(rules []Rule, t *tuple) uint32 {
	for i, r := range rules {
		if scanMatches(r, t) {
			return uint32(i)
		}
	}
	return noRule
}

func scanMatches(r Rule, t *tuple) bool {
	if !r.Src.Contains(t.src) || !r.Dst.Contains(t.dst) {
		return false
	}
	if r.Protocol == api.AnyProtocol {
		return true
	}
	if r.Protocol != t.proto {
		return false
	}
	if t.fragment {
		return true
	}
	if r.Protocol == api.TCP && t.flags&r.FlagsMask != r.FlagsValue {
		return false
	}
	return r.SrcPorts.First <= t.sport && t.sport <= r.SrcPorts.Last && r.DstPorts.First <= t.dport && t.dport <= r.DstPorts.Last
}

// A small universe, so that prefixes nest and ranges overlap often.
var (
	genProto = rapid.SampledFrom([]api.Protocol{api.TCP, api.TCP, api.UDP, api.SCTP, api.ICMP, api.ICMPv6, 47})
	genFlags = rapid.SampledFrom([]uint8{0, 0, 0, flagSYN, flagACK, flagSYN | flagACK})
	genPort  = rapid.SampledFrom([]uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 65534, 65535})
)

func genAddr(v6 bool) *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		n := rapid.Uint8Range(0, 15).Draw(t, "host")
		high := rapid.SampledFrom([]uint8{0, 0x80}).Draw(t, "high")
		if v6 {
			return netip.AddrFrom16([16]byte{0: high, 1: 1, 15: n})
		}
		return netip.AddrFrom4([4]byte{high, 0, 0, n})
	})
}

func genRange() *rapid.Generator[Range] {
	return rapid.Custom(func(t *rapid.T) Range {
		switch rapid.IntRange(0, 3).Draw(t, "range kind") {
		case 0, 1:
			return Range{0, 65535}
		case 2:
			p := genPort.Draw(t, "port")
			return Range{p, p}
		}
		a, b := genPort.Draw(t, "first"), genPort.Draw(t, "last")
		return Range{min(a, b), max(a, b)}
	})
}

func genRule() *rapid.Generator[Rule] {
	return rapid.Custom(func(t *rapid.T) Rule {
		v6 := rapid.Bool().Draw(t, "v6")
		prefix := func(label string) netip.Prefix {
			lengths := []int{0, 0, 0, 1, 28, 29, 30, 31, 32}
			n := rapid.SampledFrom(lengths).Draw(t, label)
			if v6 && n > 1 {
				n += 96
			}
			p, err := genAddr(v6).Draw(t, label).Prefix(n)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		r := Rule{
			Action: rapid.SampledFrom([]RuleAction{RuleDeny, RulePermit, RulePermitReflect}).Draw(t, "action"),
			Src:    prefix("src"), Dst: prefix("dst"),
			SrcPorts: genRange().Draw(t, "sport"), DstPorts: genRange().Draw(t, "dport"),
			FlagsMask: genFlags.Draw(t, "mask"), FlagsValue: genFlags.Draw(t, "value"),
		}
		if rapid.IntRange(0, 9).Draw(t, "any") > 0 {
			r.Protocol = genProto.Draw(t, "proto")
		}
		return r
	})
}

func genTuple() *rapid.Generator[tuple] {
	return rapid.Custom(func(t *rapid.T) tuple {
		v6 := rapid.Bool().Draw(t, "v6")
		x := tuple{
			src: genAddr(v6).Draw(t, "src"), dst: genAddr(v6).Draw(t, "dst"), proto: genProto.Draw(t, "proto"),
			fragment: rapid.IntRange(0, 5).Draw(t, "fragment") == 0,
		}
		if x.fragment {
			return x
		}
		x.sport, x.dport = genPort.Draw(t, "sport"), genPort.Draw(t, "dport")
		if x.proto == api.TCP {
			x.flags = genFlags.Draw(t, "flags")
		}
		return x
	})
}

func TestClassifierAnswersAsAScanOfTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(genRule(), 0, 120).Draw(t, "rules")
		c := newClassifier(rules)
		for _, x := range rapid.SliceOfN(genTuple(), 50, 50).Draw(t, "packets") {
			if got, want := c.lookup(&x), scan(rules, &x); got != want {
				t.Fatalf("packet %+v: rule %d, a scan says %d", x, int32(got), int32(want))
			}
		}
	})
}

// In this universe all rules share few pairs of prefixes, so that buckets are
// large and their port indexes are used.
func TestClassifierAnswersAsAScanWhenBucketsAreLarge(t *testing.T) {
	anySrc, anyDst := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("0.0.0.0/0")
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(genRule(), 20, 100).Draw(t, "rules")
		for i := range rules {
			rules[i].Src, rules[i].Dst = anySrc, anyDst
			if rules[i].Protocol == api.AnyProtocol && i < 2*len(rules)/3 {
				rules[i].Protocol = api.TCP
			}
		}
		c := newClassifier(rules)
		for _, x := range rapid.SliceOfN(genTuple(), 50, 50).Draw(t, "packets") {
			if got, want := c.lookup(&x), scan(rules, &x); got != want {
				t.Fatalf("packet %+v: rule %d, a scan says %d", x, int32(got), int32(want))
			}
		}
	})
}

func TestPrefixesOfAnIPv4MappedAddressMatchIPv6Only(t *testing.T) {
	rules := []Rule{rule(RulePermit, "::ffff:10.0.0.0/104", "::/0", 0, Range{}, Range{}), rule(RulePermit, "10.0.0.0/8", "0.0.0.0/0", 0, Range{}, Range{})}
	c := newClassifier(rules)
	v4 := netip.MustParseAddr("10.1.1.1")
	v6 := netip.AddrFrom16(v4.As16())
	if got := c.lookup(&tuple{src: v4, dst: v4}); got != 1 {
		t.Errorf("IPv4 packet matches rule %d, want 1", int32(got))
	}
	if got := c.lookup(&tuple{src: v6, dst: v6}); got != 0 {
		t.Errorf("IPv6 packet matches rule %d, want 0", int32(got))
	}
}

// IPv6 addresses are found by a hash; two with one hash must not be mixed up.
func TestIPv6AddressesWithEqualHashesDiffer(t *testing.T) {
	seen := make(map[uint32]netip.Addr)
	for n := range uint32(1 << 22) {
		a := netip.AddrFrom16([16]byte{0: 0x20, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
		key, hash := hostKey(a)
		b, ok := seen[key]
		seen[key] = a
		if _, other := hostKey(b); !ok || other>>63 != hash>>63 {
			continue
		}
		h := newHostTable(1)
		h.put(b, 7)
		if h.get(b) != 7 || h.get(a) != -1 {
			t.Errorf("%s has node %d, %s has node %d", b, h.get(b), a, h.get(a))
		}
		return
	}
	t.Fatal("no two addresses with equal hashes were found")
}

// policyRules is shaped like the rules of network policies: mostly single
// addresses and single ports, some blocks, some ranges, any destination.
func policyRules(n int) ([]Rule, []tuple) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	rules, packets := make([]Rule, n), make([]tuple, 0, n)
	for i := range rules {
		addr := netip.AddrFrom4([4]byte{10, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
		bits, ports := 32, Range{0, 65535}
		if rng.IntN(100) < 15 {
			bits = 16 + rng.IntN(13)
		}
		p, x := uint16(rng.IntN(60000)), rng.IntN(100)
		switch {
		case x < 85:
			ports = Range{p % 100, p % 100}
		case x < 95:
			ports = Range{p, p + 1000}
		}
		rules[i] = Rule{
			Action: RulePermitReflect, Src: netip.PrefixFrom(addr, bits).Masked(), Dst: netip.MustParsePrefix("0.0.0.0/0"),
			Protocol: api.TCP, SrcPorts: Range{0, 65535}, DstPorts: ports,
		}
		packets = append(packets, tuple{
			src: addr, dst: netip.MustParseAddr("10.200.0.1"), proto: api.TCP, sport: 40000, dport: ports.First, flags: flagSYN,
		})
	}
	rng.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	return rules, packets
}

func TestClassifyingDoesNotAllocate(t *testing.T) {
	rules, packets := policyRules(1000)
	b := binding{acls: []*accessList{newACL("a", rules[:500]), newACL("b", rules[500:])}}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		if a, _ := b.classify(&packets[i%len(packets)]); a == nil {
			t.Error("a packet made from a rule matches none")
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkClassify(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		rules, packets := policyRules(n)
		c := newClassifier(rules)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if c.lookup(&packets[i]) == noRule {
					b.Fatal("a packet made from a rule matches none")
				}
				if i++; i == len(packets) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkBuildClassifier(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		rules, _ := policyRules(n)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			for b.Loop() {
				newClassifier(rules)
			}
		})
	}
}

// The worst case of the real thing: all rules have the same prefixes and differ
// by port range.
func BenchmarkClassifyPortRanges(b *testing.B) {
	rules := make([]Rule, 5000)
	for i := range rules {
		first := uint16(i * 13)
		rules[i] = rule(RulePermit, "0.0.0.0/0", "0.0.0.0/0", 6, Range{}, Range{first, first + 5})
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			newClassifier(rules)
		}
	})
	c := newClassifier(rules)
	x := tuple{src: netip.MustParseAddr("10.0.0.1"), dst: netip.MustParseAddr("10.0.0.2"), proto: api.TCP}
	b.Run("lookup", func(b *testing.B) {
		for b.Loop() {
			x.dport += 13
			c.lookup(&x)
		}
	})
}
