package traffic

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffictest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// netips lets go-cmp look at addresses as values.
var netips = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func genPortRules(t *rapid.T) []api.ContivRule {
	rules := rapid.SliceOfN(rapid.Custom(traffictest.Rule), 0, 6).Draw(t, "rules")
	return append(rules, api.ContivRule{Action: rapid.SampledFrom([]api.Action{api.Permit, api.Deny}).Draw(t, "last")})
}

// probe calls f for protocols and ports at and next to all edges.
func probe(f func(p api.Protocol, src, dst uint16)) {
	for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
		for _, src := range []uint16{1, 79, 80, 81, 443, 60000, 65535} {
			for _, dst := range append([]uint16{3, 78, 82, 445, 7999, 8001, 65533}, traffictest.Edges...) {
				f(p, src, dst)
			}
		}
	}
	for _, p := range []api.Protocol{api.ICMP, 47, 50} {
		f(p, 0, 0)
	}
}

// audits reports whether the first matching rule is audited.
func audits(rules []api.ContivRule, p api.Protocol, src, dst uint16) bool {
	for _, r := range rules {
		if r.MatchesPorts(p, src, dst) {
			return r.Audit
		}
	}
	return false
}

func TestAllowedIsFirstMatchForEveryPort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genPortRules(t)
		emitted := Allowed(rules).Rules()
		probe(func(p api.Protocol, src, dst uint16) {
			if want, got := permits(rules, p, src, dst), permits(emitted, p, src, dst); got != want {
				t.Fatalf("%v %d -> %d: got %v, want %v\nrules:   %v\nemitted: %v", p, src, dst, got, want, rules, emitted)
			}
			if want, got := audits(rules, p, src, dst), audits(emitted, p, src, dst); got != want {
				t.Fatalf("%v %d -> %d: audited %v, want %v\nrules:   %v\nemitted: %v", p, src, dst, got, want, rules, emitted)
			}
		})
		for _, p := range []api.Protocol{api.TCP, api.UDP} {
			if permits(emitted, p, 0, 0) && !permits(rules, p, 0, 0) {
				t.Fatalf("port 0 of %v was opened by %v", p, emitted)
			}
		}
	})
}

func TestIntersectPermitsWhatBothPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genPortRules(t), genPortRules(t)
		both := Intersect(Allowed(a), Allowed(b)).Rules()
		probe(func(p api.Protocol, src, dst uint16) {
			want := permits(a, p, src, dst) && permits(b, p, src, dst)
			if got := permits(both, p, src, dst); got != want {
				t.Fatalf("%v %d -> %d: got %v, want %v\n%v\n%v\n%v", p, src, dst, got, want, a, b, both)
			}
			audited := want && (audits(a, p, src, dst) || audits(b, p, src, dst))
			if got := audits(both, p, src, dst); got != audited {
				t.Fatalf("%v %d -> %d: audited %v, want %v\n%v\n%v\n%v", p, src, dst, got, audited, a, b, both)
			}
		})
	})
}

func TestTrafficHasOneEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Allowed(genPortRules(t))
		for name, b := range map[string]Traffic{
			"with itself": Intersect(a, a), "with everything": Intersect(a, Everything),
			"decoded": {a.allowed.decode().encode(), a.audited.decode().encode()}, "emitted and read again": Allowed(a.Rules()),
		} {
			if a != b && !hasPortZeroAlone(a) {
				t.Fatalf("%s: %v is not %v", name, b.allowed.decode(), a.allowed.decode())
			}
		}
		if none := (Traffic{nothing, nothing}); Intersect(a, none) != none {
			t.Fatal("nothing is not permitted with nothing")
		}
	})
}

func hasPortZeroAlone(t Traffic) bool {
	for _, n := range slices.Concat(t.allowed.decode().named, t.audited.decode().named, intersect(t.allowed.decode(), complement(t.audited.decode())).named) {
		if _, exact := portRules(api.Permit, n.protocol, n.ports); !exact {
			return true
		}
	}
	return false
}

func TestRulesAreFew(t *testing.T) {
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
			if d := cmp.Diff(c.want, Allowed(c.in).Rules(), netips); d != "" {
				t.Error(d)
			}
		})
	}
}
