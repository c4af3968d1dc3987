package classify_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify/classifytest"
)

// TCP flags.
const (
	flagSYN = 1 << 1
	flagACK = 1 << 4
)

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

func genRange() *rapid.Generator[classify.Range] {
	return rapid.Custom(func(t *rapid.T) classify.Range {
		switch rapid.IntRange(0, 3).Draw(t, "range kind") {
		case 0, 1:
			return classify.Range{First: 0, Last: 65535}
		case 2:
			p := genPort.Draw(t, "port")
			return classify.Range{First: p, Last: p}
		}
		a, b := genPort.Draw(t, "first"), genPort.Draw(t, "last")
		return classify.Range{First: min(a, b), Last: max(a, b)}
	})
}

func genRule() *rapid.Generator[classify.Rule] {
	return rapid.Custom(func(t *rapid.T) classify.Rule {
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
		r := classify.Rule{
			Action: rapid.SampledFrom([]classify.Action{classify.Deny, classify.Permit, classify.PermitReflect}).Draw(t, "action"),
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

func genTuple() *rapid.Generator[classify.Tuple] {
	return rapid.Custom(func(t *rapid.T) classify.Tuple {
		v6 := rapid.Bool().Draw(t, "v6")
		x := classify.Tuple{
			Src: genAddr(v6).Draw(t, "src"), Dst: genAddr(v6).Draw(t, "dst"), Protocol: genProto.Draw(t, "proto"),
			Fragment: rapid.IntRange(0, 5).Draw(t, "fragment") == 0,
		}
		if x.Fragment {
			return x
		}
		x.SrcPort, x.DstPort = genPort.Draw(t, "sport"), genPort.Draw(t, "dport")
		if x.Protocol == api.TCP {
			x.Flags = genFlags.Draw(t, "flags")
		}
		return x
	})
}

func TestClassifierAgreesWithScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(genRule(), 0, 120).Draw(t, "rules")
		c := classify.New(rules)
		for _, x := range rapid.SliceOfN(genTuple(), 50, 50).Draw(t, "packets") {
			if got, want := c.Lookup(&x), classifytest.Scan(rules, &x); got != want {
				t.Fatalf("packet %+v: rule %d, a scan says %d", x, int32(got), int32(want))
			}
		}
	})
}

// In this universe all rules share few pairs of prefixes, so that buckets are
// large and their port indexes are used.
func TestClassifierAgreesWithScanOfLargeBuckets(t *testing.T) {
	anySrc, anyDst := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("0.0.0.0/0")
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(genRule(), 20, 100).Draw(t, "rules")
		for i := range rules {
			rules[i].Src, rules[i].Dst = anySrc, anyDst
			if rules[i].Protocol == api.AnyProtocol && i < 2*len(rules)/3 {
				rules[i].Protocol = api.TCP
			}
		}
		c := classify.New(rules)
		for _, x := range rapid.SliceOfN(genTuple(), 50, 50).Draw(t, "packets") {
			if got, want := c.Lookup(&x), classifytest.Scan(rules, &x); got != want {
				t.Fatalf("packet %+v: rule %d, a scan says %d", x, int32(got), int32(want))
			}
		}
	})
}

var anyPort = classify.Range{First: 0, Last: 65535}

// permit returns a rule for packets from any port.
func permit(src, dst string, proto api.Protocol, dport classify.Range) classify.Rule {
	return classify.Rule{
		Action: classify.Permit, Src: netip.MustParsePrefix(src), Dst: netip.MustParsePrefix(dst), Protocol: proto,
		SrcPorts: anyPort, DstPorts: dport,
	}
}

func TestClassifierMatchesMappedPrefixesAsIPv6(t *testing.T) {
	rules := []classify.Rule{permit("::ffff:10.0.0.0/104", "::/0", 0, anyPort), permit("10.0.0.0/8", "0.0.0.0/0", 0, anyPort)}
	c := classify.New(rules)
	v4 := netip.MustParseAddr("10.1.1.1")
	v6 := netip.AddrFrom16(v4.As16())
	if got := c.Lookup(&classify.Tuple{Src: v4, Dst: v4}); got != 1 {
		t.Errorf("IPv4 packet matches rule %d, want 1", int32(got))
	}
	if got := c.Lookup(&classify.Tuple{Src: v6, Dst: v6}); got != 0 {
		t.Errorf("IPv6 packet matches rule %d, want 0", int32(got))
	}
}

func BenchmarkClassify(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		rules, packets := classifytest.PolicyRules(n)
		c := classify.New(rules)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if c.Lookup(&packets[i]) == classify.NoRule {
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
		rules, _ := classifytest.PolicyRules(n)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			for b.Loop() {
				classify.New(rules)
			}
		})
	}
}

// The worst case of the real thing: all rules have the same prefixes and differ
// by port range.
func BenchmarkClassifyPortRanges(b *testing.B) {
	rules := make([]classify.Rule, 5000)
	for i := range rules {
		first := uint16(i * 13)
		rules[i] = permit("0.0.0.0/0", "0.0.0.0/0", api.TCP, classify.Range{First: first, Last: first + 5})
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			classify.New(rules)
		}
	})
	c := classify.New(rules)
	x := classify.Tuple{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: api.TCP}
	b.Run("lookup", func(b *testing.B) {
		for b.Loop() {
			x.DstPort += 13
			c.Lookup(&x)
		}
	})
}
