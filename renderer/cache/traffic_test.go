package cache

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// netips lets go-cmp look at addresses as values.
var netips = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// edges are the ports around which the generated ranges begin and end.
var edges = []uint16{1, 2, 79, 80, 81, 443, 444, 8000, 8080, 65534, 65535}

func genPorts(t *rapid.T) api.PortRange {
	if rapid.Bool().Draw(t, "any port") {
		return api.AnyPort
	}
	first := rapid.SampledFrom(edges).Draw(t, "first")
	last := rapid.SampledFrom(edges).Draw(t, "last")
	if rapid.IntRange(0, 9).Draw(t, "from zero") == 0 {
		first = 0
	}
	return api.Ports(min(first, last), max(first, last))
}

func genPortRule(t *rapid.T) api.ContivRule {
	r := api.ContivRule{
		Action:   rapid.SampledFrom([]api.Action{api.Permit, api.Permit, api.Deny}).Draw(t, "action"),
		Protocol: rapid.SampledFrom([]api.Protocol{0, api.TCP, api.UDP, api.SCTP, api.ICMP, 47}).Draw(t, "protocol"),
	}
	if r.Protocol.HasPorts() {
		r.DstPort = genPorts(t)
		if rapid.IntRange(0, 4).Draw(t, "with source port") == 0 {
			r.SrcPort = genPorts(t)
		}
	}
	return r
}

func genPortRules(t *rapid.T) []api.ContivRule {
	rules := rapid.SliceOfN(rapid.Custom(genPortRule), 0, 6).Draw(t, "rules")
	return append(rules, api.ContivRule{Action: rapid.SampledFrom([]api.Action{api.Permit, api.Deny}).Draw(t, "last")})
}

// probe calls f for protocols and ports on and around all edges.
func probe(f func(p api.Protocol, src, dst uint16)) {
	for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
		for _, src := range []uint16{1, 79, 80, 81, 443, 60000, 65535} {
			for _, dst := range append([]uint16{3, 78, 82, 445, 7999, 8001, 65533}, edges...) {
				f(p, src, dst)
			}
		}
	}
	for _, p := range []api.Protocol{api.ICMP, 47, 50} {
		f(p, 0, 0)
	}
}

func TestAllowedTrafficIsTheFirstMatchForEveryPort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genPortRules(t)
		emitted := emit(allowed(rules))
		probe(func(p api.Protocol, src, dst uint16) {
			if want, got := permits(rules, p, src, dst), permits(emitted, p, src, dst); got != want {
				t.Fatalf("%v %d -> %d: got %v, want %v\nrules:   %v\nemitted: %v", p, src, dst, got, want, rules, emitted)
			}
		})
		for _, p := range []api.Protocol{api.TCP, api.UDP} {
			if permits(emitted, p, 0, 0) && !permits(rules, p, 0, 0) {
				t.Fatalf("port 0 of %v was opened by %v", p, emitted)
			}
		}
	})
}

func TestIntersectionPermitsWhatBothSidesPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genPortRules(t), genPortRules(t)
		both := emit(intersect(allowed(a), allowed(b)))
		probe(func(p api.Protocol, src, dst uint16) {
			want := permits(a, p, src, dst) && permits(b, p, src, dst)
			if got := permits(both, p, src, dst); got != want {
				t.Fatalf("%v %d -> %d: got %v, want %v\n%v\n%v\n%v", p, src, dst, got, want, a, b, both)
			}
		})
	})
}

func TestEqualTrafficHasOneEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := allowed(genPortRules(t))
		for name, b := range map[string]traffic{
			"with itself": intersect(a, a), "with everything": intersect(a, everything),
			"decoded": a.decode().encode(), "emitted and read again": allowed(emit(a)),
		} {
			if a != b && !hasPortZeroAlone(a) {
				t.Fatalf("%s: %v is not %v", name, b.decode(), a.decode())
			}
		}
		if intersect(a, nothing) != nothing {
			t.Fatal("nothing is not permitted with nothing")
		}
	})
}

func hasPortZeroAlone(t traffic) bool {
	for _, n := range t.decode().named {
		if _, exact := portRules(api.Permit, n.protocol, n.ports); !exact {
			return true
		}
	}
	return false
}

func TestEmittedRulesAreFew(t *testing.T) {
	permit, deny := api.ContivRule{Action: api.Permit}, api.ContivRule{}
	tcp := func(a api.Action, p api.PortRange) api.ContivRule {
		return api.ContivRule{Action: a, Protocol: api.TCP, DstPort: p}
	}
	for name, c := range map[string]struct{ in, want []api.ContivRule }{
		"deny all":                {[]api.ContivRule{deny}, []api.ContivRule{deny}},
		"permit all":              {[]api.ContivRule{tcp(api.Permit, api.Port(80)), permit}, []api.ContivRule{permit}},
		"adjacent ports are one":  {[]api.ContivRule{tcp(api.Permit, api.Port(80)), tcp(api.Permit, api.Port(81)), deny}, []api.ContivRule{tcp(api.Permit, api.Ports(80, 81)), deny}},
		"a hole is denied":        {[]api.ContivRule{tcp(api.Deny, api.Port(80)), permit}, []api.ContivRule{tcp(api.Deny, api.Port(80)), permit}},
		"a shadowed rule is gone": {[]api.ContivRule{tcp(api.Permit, api.AnyPort), tcp(api.Deny, api.Port(80)), deny}, []api.ContivRule{tcp(api.Permit, api.AnyPort), deny}},
		"port 0 alone is closed":  {[]api.ContivRule{tcp(api.Deny, api.Ports(1, 65535)), tcp(api.Permit, api.AnyPort), deny}, []api.ContivRule{deny}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, emit(allowed(c.in)), netips); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAggregateKeepsExactlyTheAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []netip.Prefix
		var b netipx.IPSetBuilder
		for range rapid.IntRange(0, 40).Draw(t, "count") {
			a := netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteMax(31).Draw(t, "v4")})
			if rapid.Bool().Draw(t, "IPv6") {
				a = netip.AddrFrom16([16]byte{0: 0xfd, 15: rapid.ByteMax(31).Draw(t, "v6")})
			}
			p := netip.PrefixFrom(a, a.BitLen()-rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "short by")).Masked()
			in = append(in, p)
			b.AddPrefix(p)
		}
		want, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(in, ComparePrefixes)
		if got := Aggregate(in); !slices.Equal(got, want.Prefixes()) {
			t.Fatalf("got %v, want %v", got, want.Prefixes())
		}
	})
}

// TestRulesAboutFindsWhatHasTrafficInCommon: against a look at every rule.
func TestRulesAboutFindsWhatHasTrafficInCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ports := func(label string) api.PortRange {
			first := rapid.Uint16Range(1, 40).Draw(t, label)
			return api.Ports(first, first+rapid.Uint16Range(0, 30).Draw(t, label+" more"))
		}
		var rules []api.ContivRule
		var origins [][]api.Origin
		var all []uint32
		for i := range rapid.IntRange(0, 12).Draw(t, "rules") {
			rules = append(rules, api.ContivRule{Action: rapid.SampledFrom([]api.Action{api.Deny, api.Permit}).Draw(t, "action"), Protocol: api.TCP, DstPort: ports("rule")})
			origins = append(origins, []api.Origin{{Rule: i}})
			all = append(all, uint32(i))
		}
		r := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: ports("exception")}
		var x rulesAbout
		x.add(renderer.NewRuleList(rules, origins), all)
		x.settle()
		var want []api.Origin
		for i, rule := range rules {
			if rule.Action == r.Action && overlap(rule, r) {
				want = append(want, origins[i]...)
			}
		}
		if got := x.origins(r); !slices.Equal(got, want) {
			t.Fatalf("%v of %v come from %v, want %v", r, rules, got, want)
		}
	})
}
