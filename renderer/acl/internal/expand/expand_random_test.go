package expand

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
	"github.com/sluice-net/sluice/renderer/cache"
)

// universe holds all values in random rules; there are few, so that rules overlap.
var universe = struct {
	addrs     []netip.Addr
	ports     []uint16
	protocols []api.Protocol
}{
	[]netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.1.1"),
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd01::1"),
	},
	[]uint16{0, 79, 80, 81, 82, 443, 65535},
	[]api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, 47},
}

var ranges = rapid.SampledFrom([]api.PortRange{
	{}, api.Port(80), api.Port(82), api.Port(443), api.Ports(80, 81), api.Ports(81, 443), api.Ports(1, 65535)})

// sample is a random table with the members of its sets.
type sample struct {
	rules []api.ContivRule
	sets  map[api.SetID][]netip.Prefix
	sport bool // some rule matches source ports
}

func drawSample(t *rapid.T) sample {
	s := sample{sets: map[api.SetID][]netip.Prefix{}}
	for id := api.SetID(1); id <= 3; id++ {
		for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom(universe.addrs), 0, 4, rapid.ID).Draw(t, "members") {
			s.sets[id] = append(s.sets[id], netip.PrefixFrom(a, a.BitLen()))
		}
		slices.SortFunc(s.sets[id], prefixes.Compare)
	}
	nets := []api.Net{{}, api.SetNet(1), api.SetNet(2), api.SetNet(3)}
	for _, p := range masked("10.0.0.0/24", "10.0.0.2/31", "0.0.0.0/0", "fd00::/16") {
		nets = append(nets, api.PrefixNet(p))
	}
	s.sport = rapid.IntRange(0, 3).Draw(t, "source ports when 0") == 0
	for range rapid.IntRange(0, 5).Draw(t, "rules") {
		r := s.drawRule(t, nets)
		s.rules = append(s.rules, r)
		if r.Protocol.HasPorts() { // with more ports, this makes a cross product
			for _, p := range rapid.SliceOfNDistinct(ranges, 0, 3, rapid.ID).Draw(t, "more ports") {
				r.DstPort = p
				s.rules = append(s.rules, r)
			}
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "permits the rest when 0") > 0 {
		s.rules = append(s.rules, api.ContivRule{})
	} else {
		s.rules = append(s.rules, api.ContivRule{Action: api.Permit})
	}
	return s
}

func (s *sample) drawRule(t *rapid.T, nets []api.Net) api.ContivRule {
	net := rapid.SampledFrom(nets)
	// Most rules permit one port from one of few sets to anywhere.
	r := api.ContivRule{Action: api.Permit, Src: net.Draw(t, "src"), Protocol: api.TCP, DstPort: ranges.Draw(t, "ports")}
	switch rapid.IntRange(0, 5).Draw(t, "other") {
	case 0:
		if r.Action = api.Deny; rapid.Bool().Draw(t, "everything") {
			r.Protocol, r.DstPort = api.AnyProtocol, api.AnyPort
		}
	case 1:
		r.Dst = net.Draw(t, "dst")
	case 2:
		r.Protocol = rapid.SampledFrom([]api.Protocol{api.UDP, api.SCTP}).Draw(t, "protocol")
	case 3:
		r.Protocol, r.DstPort = rapid.SampledFrom([]api.Protocol{api.AnyProtocol, api.ICMP, 47}).Draw(t, "protocol"), api.AnyPort
	case 4:
		if s.sport {
			r.SrcPort = ranges.Draw(t, "source ports")
		}
	}
	return r
}

func (s *sample) inSet(id api.SetID, a netip.Addr) bool {
	return slices.ContainsFunc(s.sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
}

// flows calls f for every flow of the terrain.
func (s *sample) flows(f func(api.Flow)) {
	for _, src := range universe.addrs {
		for _, dst := range universe.addrs {
			if src.Is4() != dst.Is4() {
				continue
			}
			for _, protocol := range universe.protocols {
				for _, port := range universe.ports {
					flow := api.Flow{Src: src, Dst: dst, Protocol: protocol, DstPort: port}
					f(flow)
					if s.sport {
						flow.SrcPort = 81
						f(flow)
					}
					if !protocol.HasPorts() {
						break
					}
				}
			}
		}
	}
}

func TestExpandDecidesLikeRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		x := of(func(id api.SetID) []netip.Prefix { return s.sets[id] })
		threshold := rapid.SampledFrom([]int{-100, 1, 3, 1000}).Draw(t, "worth it")
		x.enough = func(api.Protocol) int { return threshold }
		table := &cache.Table{Rules: s.rules}
		if rapid.Bool().Draw(t, "by source") {
			table.Parts = []int{0}
		}
		got, err := x.Expand(table, 0, len(s.rules))
		if err != nil {
			t.Fatal(err)
		}
		s.checkDecisions(t, got)
		if !s.sport {
			checkNoneIsHidden(t, got)
		}
	})
}

// checkDecisions compares verdicts, and checks that the rule reported for an entry matches and
// belongs to the run of equal verdicts that contains the first match.
func (s *sample) checkDecisions(t *rapid.T, got entries.List) {
	own := make([]bool, len(s.rules))
	for _, r := range got.Rules {
		own[r] = true
	}
	with, shapes := countedWith(s.rules, own), maps.Collect(shapesOf(s.rules))
	s.flows(func(f api.Flow) {
		want := slices.IndexFunc(s.rules, func(r api.ContivRule) bool { return r.Matches(f, s.inSet) })
		i := slices.IndexFunc(got.Entries, func(e entries.Entry) bool { return entriestest.Matches(&e, f) })
		if (i < 0) != (want < 0) {
			t.Fatalf("%s is decided by entry %d and by rule %d of %v\n%q", f, i, want, s.rules, entriestest.Text(got.Entries))
		}
		if i < 0 {
			return
		}
		if permits := got.Entries[i].Verdict != entries.Deny; permits != (s.rules[want].Action == api.Permit) {
			t.Fatalf("%s meets entry %d, and rule %d of %v\n%q", f, i, want, s.rules, entriestest.Text(got.Entries))
		}
		for r := range s.rules {
			if with[r] == int(got.Rules[i]) && shapes[r].run == shapes[want].run && s.rules[r].Matches(f, s.inSet) {
				return
			}
		}
		t.Fatalf("%s is decided by rule %d, said to be %d, of %v\n%q", f, want, got.Rules[i], s.rules, entriestest.Text(got.Entries))
	})
}

func checkNoneIsHidden(t *rapid.T, got entries.List) {
	contains := func(a, b entries.Net) bool { return a.Bits() <= b.Bits() && a.Contains(&b) }
	for i, e := range got.Entries {
		for j, o := range got.Entries[:i] {
			if contains(o.Src, e.Src) && contains(o.Dst, e.Dst) && (traffic{o.Protocol, o.SrcPort, o.DstPort}).contains(traffic{e.Protocol, e.SrcPort, e.DstPort}) {
				t.Fatalf("entry %d hides entry %d\n%q", j, i, entriestest.Text(got.Entries))
			}
		}
	}
}
