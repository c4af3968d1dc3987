package configurator

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// permitted evaluates policies directly from the types of package api.
func permitted(d api.Direction, policies []*api.ContivPolicy, f api.Flow, inSet func(api.SetID, netip.Addr) bool) bool {
	isolated := false
	for _, p := range policies {
		if p.Tier != api.TierNetworkPolicy || !p.Isolates(d) {
			continue
		}
		isolated = true
		for _, r := range p.Rules(d) {
			if peerMatches(r, d, f, inSet) && portMatches(r, f) {
				return true
			}
		}
	}
	return !isolated
}

func peerMatches(r api.PolicyRule, d api.Direction, f api.Flow, inSet func(api.SetID, netip.Addr) bool) bool {
	peer := f.Src
	if d == api.Egress {
		peer = f.Dst
	}
	return r.AnyPeer || slices.ContainsFunc(r.Sets, func(s api.SetID) bool { return inSet(s, peer) }) ||
		slices.ContainsFunc(r.Blocks, func(b api.IPBlock) bool { return b.Contains(peer) })
}

func portMatches(r api.PolicyRule, f api.Flow) bool {
	return r.AnyPort || slices.ContainsFunc(r.Ports, func(p api.PolicyPort) bool {
		return p.Protocol == f.Protocol && p.Range.Contains(f.DstPort)
	})
}

// The sets of the property, by the last bit of addresses.
func inTestSet(s api.SetID, a netip.Addr) bool {
	b := a.AsSlice()
	return uint64(b[len(b)-1])&1 == uint64(s)&1
}

var (
	propertyCIDRs = []netip.Prefix{
		pfx("0.0.0.0/0"), pfx("::/0"), pfx("10.0.0.0/8"), pfx("10.0.0.0/28"), pfx("10.0.0.0/29"), pfx("10.0.0.8/29"), pfx("10.0.0.0/30"), pfx("10.0.0.4/30"),
		pfx("10.0.0.3/32"), pfx("10.0.0.8/31"), pfx("10.0.0.10/32"), pfx("10.0.0.12/32"), pfx("10.0.0.14/32"), pfx("fd00::/124"), pfx("fd00::/125"), pfx("fd00::8/126"), pfx("fd00::a/128"),
	}
	propertyPorts = []api.PolicyPort{
		{Protocol: api.TCP, Range: api.Port(80)}, {Protocol: api.TCP, Range: api.Port(81)}, {Protocol: api.TCP, Range: api.Ports(79, 82)}, {Protocol: api.TCP, Range: api.Ports(83, 90)},
		{Protocol: api.TCP}, {Protocol: api.UDP, Range: api.Port(80)}, {Protocol: api.UDP}, {Protocol: api.SCTP, Range: api.Ports(1, 80)},
	}
)

func drawPolicies(t *rapid.T) []*api.ContivPolicy {
	var policies []*api.ContivPolicy
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		p := &api.ContivPolicy{ID: policyID(string(rune('a' + i))), Tier: api.TierNetworkPolicy}
		p.IsolatesIngress, p.IsolatesEgress = rapid.IntRange(0, 3).Draw(t, "ingress") > 0, rapid.Bool().Draw(t, "egress")
		for n := range rapid.IntRange(0, 5).Draw(t, "rules") {
			r := drawRule(t)
			r.Index = n
			p.Ingress, p.Egress = append(p.Ingress, r), append(p.Egress, r)
		}
		policies = append(policies, p)
	}
	return policies
}

func drawRule(t *rapid.T) api.PolicyRule {
	r := api.PolicyRule{Action: api.RuleAllow}
	r.AnyPeer = rapid.IntRange(0, 9).Draw(t, "any peer") == 9
	r.AnyPort = rapid.IntRange(0, 4).Draw(t, "any port") == 4
	r.Sets = rapid.SliceOfNDistinct(rapid.SampledFrom([]api.SetID{300, 301, 302}), 0, 2, rapid.ID).Draw(t, "sets")
	for range rapid.IntRange(0, 7).Draw(t, "blocks") {
		except := rapid.SliceOfN(rapid.SampledFrom(propertyCIDRs), 0, 3).Draw(t, "except")
		r.Blocks = append(r.Blocks, api.IPBlock{CIDR: rapid.SampledFrom(propertyCIDRs).Draw(t, "cidr"), Except: except})
	}
	r.Ports = rapid.SliceOfN(rapid.SampledFrom(propertyPorts), 0, 3).Draw(t, "ports")
	return r
}

func propertyFlows(d api.Direction) (flows []api.Flow) {
	addrs := []netip.Addr{netip.MustParseAddr("9.255.255.255"), netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("11.0.0.0"), netip.MustParseAddr("fe80::1")}
	for i := range byte(17) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{10, 0, 0, i}), netip.AddrFrom16([16]byte{0: 0xfd, 15: i}))
	}
	for _, a := range addrs {
		for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP} {
			for _, port := range []uint16{1, 78, 79, 80, 81, 83, 90, 91} {
				f := api.Flow{Src: a, Dst: netip.MustParseAddr("192.0.2.1"), Protocol: p, SrcPort: 1, DstPort: port}
				if d == api.Egress {
					f.Src, f.Dst = f.Dst, f.Src
				}
				flows = append(flows, f)
			}
		}
	}
	return flows
}

// evaluate returns the first match in a generated list, with its derived sets.
func (g *generated) evaluate(f api.Flow) (permit bool, by int) {
	if g == nil {
		return true, -1
	}
	inSet := func(s api.SetID, a netip.Addr) bool {
		for _, derived := range g.sets {
			if derived.id != s {
				continue
			}
			if c := derived.common; c != nil {
				return c.contains(testSets{}, a)
			}
			return slices.ContainsFunc(derived.members, func(p netip.Prefix) bool { return p.Contains(a) })
		}
		return inTestSet(s, a)
	}
	for i, r := range g.rules.Rules() {
		if r.Matches(f, inSet) {
			return r.Action == api.Permit, i
		}
	}
	return false, -1
}

func TestGeneratedListsMeanWhatPoliciesMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawPolicies(t)
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			g := generate(d, policies, false)
			for _, f := range propertyFlows(d) {
				want := permitted(d, policies, f, inTestSet)
				got, by := g.evaluate(f)
				if got != want {
					t.Fatalf("%s %s: permitted is %t, want %t; rules\n%s", d, f, got, want, g.text())
				}
				if by >= 0 && got {
					checkOrigins(t, policies, d, f, g.rules.Origins(by))
				}
			}
		}
	})
}

// checkOrigins requires that one of the origins of the rule that permits a flow is
// a policy rule that permits it.
func checkOrigins(t *rapid.T, policies []*api.ContivPolicy, d api.Direction, f api.Flow, origins []api.Origin) {
	for _, o := range origins {
		for _, p := range policies {
			if p.ID == o.Policy && o.Direction == d && peerMatches(p.Rules(d)[o.Rule], d, f, inTestSet) && portMatches(p.Rules(d)[o.Rule], f) {
				return
			}
		}
	}
	t.Fatalf("%s %s: none of the origins %v permits it", d, f, origins)
}

func TestGeneratedListsAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generate(api.Ingress, drawPolicies(t), rapid.Bool().Draw(t, "allow node"))
		if g == nil {
			return
		}
		if last := g.rules.Rules()[g.rules.Len()-1]; g.rules.Len() > 1 && last != (api.ContivRule{Action: api.Deny}) {
			t.Fatalf("the last rule is %s", last)
		}
		for i, r := range g.rules.Rules()[:g.rules.Len()-1] {
			if r.Action != api.Permit {
				t.Fatalf("rule %d is %s, want permits only before the last", i, r)
			}
			for j, o := range g.rules.Rules()[:g.rules.Len()-1] {
				if i != j && within(r, o) {
					t.Fatalf("%s is in %s\n%s", r, o, g.text())
				}
				if i != j && r.Src == o.Src && r.Protocol == o.Protocol && touch(r.DstPort, o.DstPort) {
					t.Fatalf("%s and %s could be one\n%s", r, o, g.text())
				}
			}
		}
	})
}

// within reports whether o is known to match all that r matches.
func within(r, o api.ContivRule) bool {
	rf, rl := r.DstPort.Bounds()
	of, ol := o.DstPort.Bounds()
	ports := o.Protocol == api.AnyProtocol || o.Protocol == r.Protocol && of <= rf && rl <= ol
	peer := o.Src.IsAny() || o.Src == r.Src ||
		r.Src.Prefix.IsValid() && o.Src.Prefix.IsValid() && o.Src.Prefix.Bits() <= r.Src.Prefix.Bits() && o.Src.Prefix.Overlaps(r.Src.Prefix)
	return ports && peer
}

func touch(a, b api.PortRange) bool {
	af, al := a.Bounds()
	bf, bl := b.Bounds()
	return int(af) <= int(bl)+1 && int(bf) <= int(al)+1
}

// shuffled returns the same policies with everything in another order.
func shuffled(policies []*api.ContivPolicy, r *rand.Rand) []*api.ContivPolicy {
	mix := func(rules []api.PolicyRule) []api.PolicyRule {
		rules = slices.Clone(rules)
		for i := range rules {
			rules[i].Ports, rules[i].Sets, rules[i].Blocks = slices.Clone(rules[i].Ports), slices.Clone(rules[i].Sets), slices.Clone(rules[i].Blocks)
			shuffle(r, rules[i].Ports)
			shuffle(r, rules[i].Sets)
			shuffle(r, rules[i].Blocks)
			for j := range rules[i].Blocks {
				b := &rules[i].Blocks[j]
				b.Except = slices.Clone(b.Except)
				shuffle(r, b.Except)
			}
		}
		shuffle(r, rules)
		return rules
	}
	var result []*api.ContivPolicy
	for _, p := range policies {
		q := *p
		q.Ingress, q.Egress = mix(p.Ingress), mix(p.Egress)
		result = append(result, &q)
	}
	shuffle(r, result)
	return result
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func TestGenerateIgnoresOrderOfInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawPolicies(t)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		want := generate(api.Ingress, policies, true).text()
		if diff := cmp.Diff(want, generate(api.Ingress, shuffled(policies, r), true).text()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestGenerateDoesNotChangeItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawPolicies(t)
		same := shuffled(policies, rand.New(rand.NewPCG(1, 1)))
		before := shuffled(same, rand.New(rand.NewPCG(2, 2)))
		generate(api.Ingress, same, true)
		after := shuffled(same, rand.New(rand.NewPCG(2, 2)))
		if diff := cmp.Diff(before, after, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Fatal(diff)
		}
	})
}
