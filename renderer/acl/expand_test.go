package acl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// text writes entries short: verdict, source, destination, protocol and ports.
func text(entries []entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprint([]string{"deny", "permit", "reflect"}[e.verdict], " ", e.src, " ", e.dst, " ", e.protocol, " ", e.dport))
	}
	return out
}

func TestRulesExpandByFamilyIntoTheFewestPrefixes(t *testing.T) {
	sets := map[api.SetID][]netip.Prefix{
		1: prefixes("10.0.0.0/32", "10.0.0.1/32", "10.0.0.3/32", "fd00::/128", "fd00::1/128"),
		2: prefixes("10.9.0.0/16"),
	}
	permit := api.ContivRule{Action: api.Permit}
	tcp := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}
	with := func(r api.ContivRule, src, dst api.Net) api.ContivRule { r.Src, r.Dst = src, dst; return r }
	for name, c := range map[string]struct {
		rules []api.ContivRule
		want  []string
	}{
		"any is both families": {[]api.ContivRule{{}}, []string{"deny 0.0.0.0/0 0.0.0.0/0 any {0 65535}", "deny ::/0 ::/0 any {0 65535}"}},
		"a set is aggregated": {[]api.ContivRule{with(tcp, api.SetNet(1), api.Net{})}, []string{
			"reflect 10.0.0.0/31 0.0.0.0/0 tcp {80 80}", "reflect 10.0.0.3/32 0.0.0.0/0 tcp {80 80}", "reflect fd00::/127 ::/0 tcp {80 80}"}},
		"two sets meet in one family": {[]api.ContivRule{with(permit, api.SetNet(1), api.SetNet(2))}, []string{
			"reflect 10.0.0.0/31 10.9.0.0/16 any {0 65535}", "reflect 10.0.0.3/32 10.9.0.0/16 any {0 65535}"}},
		"an empty set is nothing": {[]api.ContivRule{with(permit, api.SetNet(3), api.Net{})}, nil},
		"what is hidden is left out": {[]api.ContivRule{with(tcp, api.PrefixNet(prefixes("10.0.0.0/30")[0]), api.Net{}), with(tcp, api.SetNet(1), api.Net{})}, []string{
			"reflect 10.0.0.0/30 0.0.0.0/0 tcp {80 80}", "reflect fd00::/127 ::/0 tcp {80 80}"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpander(func(id api.SetID) []netip.Prefix { return sets[id] })
			got, err := x.expand(&cache.Table{Rules: c.rules}, 0, len(c.rules))
			if err != nil || !slices.Equal(text(got.entries), c.want) || len(got.rules) != len(got.entries) {
				t.Errorf("got %q, %v; want %q", text(got.entries), err, c.want)
			}
		})
	}
}

func TestExpansionDecidesLikeTheRules(t *testing.T) {
	addrs := []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.1"}
	rapid.Check(t, func(t *rapid.T) {
		sets := make(map[api.SetID][]netip.Prefix)
		for id := api.SetID(1); id <= 2; id++ {
			for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom(addrs), 0, 3, rapid.ID).Draw(t, "members") {
				sets[id] = append(sets[id], netip.MustParsePrefix(a+"/32"))
			}
			slices.SortFunc(sets[id], cache.ComparePrefixes)
		}
		net := rapid.SampledFrom([]api.Net{{}, api.SetNet(1), api.SetNet(2), api.PrefixNet(prefixes("10.0.0.0/24")[0]), api.PrefixNet(prefixes("10.0.0.2/32")[0])})
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.ContivRule {
			r := api.ContivRule{Action: api.Action(rapid.IntRange(0, 1).Draw(t, "action")), Src: net.Draw(t, "src"), Dst: net.Draw(t, "dst")}
			if rapid.Bool().Draw(t, "tcp") {
				r.Protocol, r.DstPort = api.TCP, rapid.SampledFrom([]api.PortRange{{}, api.Port(80), api.Ports(80, 443)}).Draw(t, "ports")
			}
			return r
		}), 1, 6).Draw(t, "rules")
		x := newExpander(func(id api.SetID) []netip.Prefix { return sets[id] })
		got, err := x.expand(&cache.Table{Rules: rules}, 0, len(rules))
		if err != nil {
			t.Fatal(err)
		}
		inSet := func(id api.SetID, a netip.Addr) bool {
			return slices.ContainsFunc(sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
		}
		for _, src := range addrs {
			for _, dst := range addrs {
				for _, port := range []uint16{79, 80, 443} {
					f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, DstPort: port}
					want := slices.IndexFunc(rules, func(r api.ContivRule) bool { return r.Matches(f, inSet) })
					i := slices.IndexFunc(got.entries, func(e entry) bool { return e.matches(f) })
					if (i < 0) != (want < 0) || i >= 0 && int(got.rules[i]) != want {
						t.Fatalf("%s is decided by entry %d, want rule %d of %v\n%q", f, i, want, rules, text(got.entries))
					}
				}
			}
		}
	})
}

// matches evaluates an entry without flags as VPP does.
func (e *entry) matches(f api.Flow) bool {
	return e.src.Contains(f.Src) && e.dst.Contains(f.Dst) && (e.protocol == 0 || e.protocol == f.Protocol &&
		e.sport.first <= f.SrcPort && f.SrcPort <= e.sport.last && e.dport.first <= f.DstPort && f.DstPort <= e.dport.last)
}

// many returns an expansion of n different entries; skip leaves one of them out.
func many(n, skip int) expansion {
	var x expansion
	for i := range n {
		if i == skip {
			continue
		}
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		x.entries = append(x.entries, entry{verdict: reflect, src: p, dst: anyIPv4, sport: anyPorts, dport: anyPorts})
		x.rules = append(x.rules, int32(i))
	}
	return x
}

func TestLongTablesAreCutSoThatOneEntryChangesOnePiece(t *testing.T) {
	all := cut(many(60_000, -1))
	var total int
	for _, p := range all {
		if len(p.entries) > maxEntries || p.count != len(p.rules) {
			t.Errorf("a piece has %d entries and %d rules", len(p.entries), len(p.rules))
		}
		total += p.count
	}
	if total != 60_000 || len(all) < 4 {
		t.Fatalf("%d entries in %d pieces", total, len(all))
	}
	for _, skip := range []int{1, 30_000, 59_999} {
		one := cut(many(60_000, skip))
		differ := 0
		for i := range one {
			if i >= len(all) || one[i].digest != all[i].digest {
				differ++
			}
		}
		if len(one) != len(all) || differ != 1 {
			t.Errorf("without entry %d, %d of %d pieces differ, want 1 of %d", skip, differ, len(one), len(all))
		}
	}
	if small := cut(many(100, -1)); len(small) != 1 {
		t.Errorf("a short table has %d pieces", len(small))
	}
}

func TestATableThatExplodesIsRefusedBeforeItIsMade(t *testing.T) {
	var members []netip.Prefix
	for _, e := range many(40_000, -1).entries {
		if e.src.Addr().As4()[3]%2 == 0 {
			members = append(members, e.src)
		}
	}
	x := newExpander(func(api.SetID) []netip.Prefix { return members })
	r := []api.ContivRule{{Action: api.Permit, Src: api.SetNet(1), Dst: api.SetNet(1)}}
	if _, err := x.expand(&cache.Table{Rules: r}, 0, 1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want %v", err, ErrTooLarge)
	}
}

func TestRulesSurviveTheWireFormat(t *testing.T) {
	entries := append(append(Infra{}.entries(), reflectEntries()...), many(3, -1).entries...)
	if got := fromRules(toRules(entries)); !slices.Equal(got, entries) {
		t.Errorf("got %v, want %v", got, entries)
	}
}

func TestInterfaceTagsFitAndAreUnique(t *testing.T) {
	long := strings.Repeat("n", 60)
	seen := make(map[string]api.PodID)
	for _, p := range []api.PodID{{Namespace: "a", Name: "b"}, {Namespace: long, Name: "x"}, {Namespace: long, Name: "y"}, {Namespace: long[1:], Name: "nx"}} {
		tag := InterfaceTag(p)
		if len(tag) > maxTag || !strings.HasPrefix(tag, "sluice/pod/") {
			t.Errorf("tag %q of %d characters", tag, len(tag))
		}
		if o, ok := seen[tag]; ok {
			t.Errorf("%v and %v have the tag %q", o, p, tag)
		}
		seen[tag] = p
	}
	if got := InterfaceTag(api.PodID{Namespace: "a", Name: "b"}); got != "sluice/pod/a/b" {
		t.Errorf("tag %q", got)
	}
}

func TestTagsOfACLsAreReadBack(t *testing.T) {
	tag := aclTag("l4294967295", 254, digestOf(nil))
	if slot, n, own := parseTag(tag); len(tag) > maxTag || slot != "l4294967295" || n != 254 || !own {
		t.Errorf("%q is read as %q %d %v", tag, slot, n, own)
	}
	for tag, own := range map[string]bool{"": false, "firewall": false, "sluice": false, "sluice:": true, "sluice:x": true, "sluice:x:-1:": true, "sluice::1:": true} {
		if slot, _, got := parseTag(tag); got != own || slot != "" {
			t.Errorf("%q: slot %q, own %v, want %v", tag, slot, got, own)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("sluice:l1:0:00")
	f.Add("sluice:g:9999999999999999999999:")
	f.Fuzz(func(t *testing.T, tag string) {
		slot, n, own := parseTag(tag)
		if own != strings.HasPrefix(tag, ownPrefix) || n < 0 || slot != "" && !own {
			t.Errorf("%q is read as %q %d %v", tag, slot, n, own)
		}
	})
}
