package permits

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

func source(r api.ContivRule) api.Net { return r.Src }

var sets = map[api.SetID][]netip.Prefix{
	2: {netip.MustParsePrefix("10.0.0.0/30"), netip.MustParsePrefix("fd00::1/128")},
	3: {netip.MustParsePrefix("10.0.0.2/31")},
	4: nil,
}

func members(id api.SetID) []netip.Prefix { return sets[id] }

func inSet(id api.SetID, a netip.Addr) bool {
	return slices.ContainsFunc(sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
}

// drawRule draws a rule whose parts overlap those of others.
func drawRule(t *rapid.T) api.ContivRule {
	nets := []api.Net{{}, api.SetNet(2), api.SetNet(3), api.SetNet(4)}
	for _, p := range []string{"10.0.0.0/8", "10.0.0.0/29", "10.0.0.1/32", "0.0.0.0/0", "::/0", "fd00::/126", "fd00::2/128"} {
		nets = append(nets, api.PrefixNet(netip.MustParsePrefix(p)))
	}
	r := api.ContivRule{
		Action: rapid.SampledFrom([]api.Action{api.Permit, api.Deny}).Draw(t, "action"), Src: rapid.SampledFrom(nets).Draw(t, "net"),
		Protocol: rapid.SampledFrom([]api.Protocol{api.AnyProtocol, api.TCP, api.UDP, api.SCTP, api.ICMP, 47}).Draw(t, "protocol"),
	}
	if r.Protocol.HasPorts() {
		r.DstPort = rapid.SampledFrom([]api.PortRange{api.AnyPort, api.Port(80), api.Ports(80, 90), api.Ports(85, 65535), api.Ports(1, 84)}).Draw(t, "ports")
	}
	return r
}

// TestPermitsFollowFirstMatch asks the list and the permits about the corners of all rules.
func TestPermitsFollowFirstMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := append(rapid.SliceOfN(rapid.Custom(drawRule), 0, 8).Draw(t, "rules"), api.ContivRule{})
		list := Of(renderer.NewRuleList(rules, nil), source)
		for _, a := range []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.7", "10.9.9.9", "192.0.2.1", "fd00::1", "fd00::2", "fd00::3", "2001:db8::1"} {
			addr := netip.MustParseAddr(a)
			for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, 47, 50} {
				for _, port := range []uint16{1, 79, 80, 84, 85, 90, 91, 65535} {
					f := api.Flow{Src: addr, Protocol: p, DstPort: port}
					first := slices.IndexFunc(rules, func(r api.ContivRule) bool { return r.Matches(f, inSet) })
					want := rules[first].Action == api.Permit
					if got := permitted(list, f); got != want {
						t.Fatalf("%s: permitted %t, want %t by %v", f, got, want, rules[first])
					}
				}
			}
		}
	})
}

// permitted evaluates permits remote by remote.
func permitted(l *List, f api.Flow) bool {
	for _, p := range l.Permits {
		if p.Protocol != api.AnyProtocol && p.Protocol != f.Protocol || f.Protocol.HasPorts() && (f.DstPort < p.Ports.First || f.DstPort > p.Ports.Last) {
			continue
		}
		for _, r := range p.Remotes {
			out := slices.ContainsFunc(r.Except, func(n api.Net) bool { return n.Contains(f.Src, inSet) })
			if r.Net.Contains(f.Src, inSet) && !out {
				if !slices.ContainsFunc(Expand([]Remote{r}, members), func(p netip.Prefix) bool { return p.Contains(f.Src) }) {
					return false // the prefixes differ from the remote
				}
				return true
			}
		}
	}
	return false
}

// TestPermitsComeFromRulesAboutThem: a permit is attributed to the rules about its protocol and ports, and
// to no others of the same remote.
func TestPermitsComeFromRulesAboutThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := append(rapid.SliceOfN(rapid.Custom(drawRule), 0, 8).Draw(t, "rules"), api.ContivRule{})
		origins := make([][]api.Origin, len(rules))
		for i := range rules {
			origins[i] = []api.Origin{{Rule: i}}
		}
		for _, p := range Of(renderer.NewRuleList(rules, origins), source).Permits {
			if len(p.Origins) == 0 {
				t.Fatalf("%+v comes from nothing in %v", p, rules)
			}
			for _, o := range p.Origins {
				r := rules[o.Rule]
				first, last := r.DstPort.Bounds()
				if r.Action != api.Permit || r.Protocol != api.AnyProtocol && r.Protocol != p.Protocol || first > p.Ports.Last || last < p.Ports.First {
					t.Fatalf("%+v comes from %v", p, r)
				}
			}
		}
	})
}

func TestPermitsOfNoListAreAll(t *testing.T) {
	l := Of(nil, source)
	if len(l.Permits) != 1 || !l.Permits[0].Remotes[0].IsAny() || l.Permits[0].Protocol != api.AnyProtocol {
		t.Errorf("a nil list is %+v", l)
	}
	if p := Expand(l.Permits[0].Remotes, members); len(p) != 2 {
		t.Errorf("everything is %v", p)
	}
	if l := Of(renderer.NewRuleList(nil, nil), source); len(l.Permits) != 0 {
		t.Errorf("an empty list permits %+v", l.Permits)
	}
}

// TestPermitsOfAnyoneAreNotRepeated: a permit for any remote covers others.
func TestPermitsOfAnyoneAreNotRepeated(t *testing.T) {
	tcp := func(n api.Net, p api.PortRange) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Src: n, Protocol: api.TCP, DstPort: p}
	}
	l := Of(renderer.NewRuleList([]api.ContivRule{tcp(api.SetNet(2), api.Ports(70, 80)), tcp(api.Net{}, api.Ports(75, 90)), {}}, nil), source)
	if len(l.Permits) != 2 || l.Permits[0].Ports.Last != 74 || !l.Permits[1].Remotes[0].IsAny() {
		t.Errorf("permits are %+v", l.Permits)
	}
}
