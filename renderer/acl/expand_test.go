package acl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
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
		4: prefixes("10.8.0.0/32", "10.8.0.2/32", "10.8.0.4/32", "10.8.0.6/32", "10.8.0.8/32", "10.8.0.10/32", "10.8.0.12/32", "10.8.0.14/32"),
	}
	permit := api.ContivRule{Action: api.Permit}
	tcp := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}
	port := func(n uint16) api.ContivRule { r := tcp; r.DstPort = api.Port(n); return r }
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
		"what is hidden by its destination is left out": {[]api.ContivRule{with(permit, api.SetNet(1), api.PrefixNet(prefixes("10.9.0.0/16")[0])), with(tcp, api.SetNet(1), api.PrefixNet(prefixes("10.9.1.0/24")[0])), {}}, []string{
			"reflect 10.0.0.0/31 10.9.0.0/16 any {0 65535}", "reflect 10.0.0.3/32 10.9.0.0/16 any {0 65535}", "deny 0.0.0.0/0 0.0.0.0/0 any {0 65535}", "deny ::/0 ::/0 any {0 65535}"}},
		"neighbouring ports are merged": {[]api.ContivRule{with(tcp, api.SetNet(2), api.Net{}), with(port(443), api.SetNet(2), api.Net{}), with(port(81), api.SetNet(2), api.Net{})}, []string{
			"reflect 10.9.0.0/16 0.0.0.0/0 tcp {80 81}", "reflect 10.9.0.0/16 0.0.0.0/0 tcp {443 443}"}},
		"ports are not merged across a deny": {[]api.ContivRule{with(tcp, api.SetNet(2), api.Net{}), with(api.ContivRule{}, api.SetNet(2), api.Net{}), with(port(81), api.SetNet(2), api.Net{})}, []string{
			"reflect 10.9.0.0/16 0.0.0.0/0 tcp {80 80}", "deny 10.9.0.0/16 0.0.0.0/0 any {0 65535}"}},
		"a large product becomes gaps and prefixes": {[]api.ContivRule{with(tcp, api.SetNet(4), api.Net{}), with(tcp, api.SetNet(2), api.Net{}), with(port(443), api.SetNet(4), api.Net{}), {}}, []string{
			"reflect 10.9.0.0/16 0.0.0.0/0 tcp {80 80}",
			"deny 0.0.0.0/0 0.0.0.0/0 tcp {0 79}", "deny 0.0.0.0/0 0.0.0.0/0 tcp {81 442}", "deny 0.0.0.0/0 0.0.0.0/0 tcp {444 65535}",
			"reflect 10.8.0.0/32 0.0.0.0/0 tcp {0 65535}", "reflect 10.8.0.2/32 0.0.0.0/0 tcp {0 65535}", "reflect 10.8.0.4/32 0.0.0.0/0 tcp {0 65535}",
			"reflect 10.8.0.6/32 0.0.0.0/0 tcp {0 65535}", "reflect 10.8.0.8/32 0.0.0.0/0 tcp {0 65535}", "reflect 10.8.0.10/32 0.0.0.0/0 tcp {0 65535}",
			"reflect 10.8.0.12/32 0.0.0.0/0 tcp {0 65535}", "reflect 10.8.0.14/32 0.0.0.0/0 tcp {0 65535}",
			"deny 0.0.0.0/0 0.0.0.0/0 any {0 65535}", "deny ::/0 ::/0 any {0 65535}"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpander(func(id api.SetID) []netip.Prefix { return sets[id] })
			x.enough = func(api.Protocol) int { return 2 }
			got, err := x.expand(&cache.Table{Rules: c.rules}, 0, len(c.rules))
			if err != nil || !slices.Equal(text(got.entries), c.want) || len(got.rules) != len(got.entries) {
				t.Errorf("got %q, %v; want %q", text(got.entries), err, c.want)
			}
		})
	}
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
	entries := append(append(infraEntries(renderer.Infra{}), reflectEntries()...), many(3, -1).entries...)
	if got := fromRules(toRules(entries)); !slices.Equal(got, entries) {
		t.Errorf("got %v, want %v", got, entries)
	}
}

func TestInterfaceTagsFitAndAreUnique(t *testing.T) {
	long := strings.Repeat("n", 60)
	seen := make(map[string]api.PodID)
	for _, p := range []api.PodID{{Namespace: "a", Name: "b"}, {Namespace: long, Name: "x"}, {Namespace: long, Name: "y"}, {Namespace: long[1:], Name: "nx"}} {
		tag := InterfaceTag(p)
		if len(tag) > vpp.MaxTag || !strings.HasPrefix(tag, "sluice/pod/") {
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
	for _, r := range []role{{}, {cold, deny}, {cold, reflect}, {warm, deny}, {warm, reflect}, {young, deny}, {young, reflect}} {
		tag := aclTag("l4294967295", 254, r, digestOf(nil))
		if slot, n, got, own := parseTag(tag); len(tag) > vpp.MaxTag || slot != "l4294967295" || n != 254 || got != r || !own {
			t.Errorf("%q is read as %q %d %v %v", tag, slot, n, got, own)
		}
	}
	for tag, own := range map[string]bool{"": false, "firewall": false, "sluice": false, "sluice:": true, "sluice:x": true, "sluice:x:-1:": true, "sluice::1:": true} {
		if slot, _, _, got := parseTag(tag); got != own || slot != "" {
			t.Errorf("%q: slot %q, own %v, want %v", tag, slot, got, own)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("sluice:l1:0:00")
	f.Add("sluice:g:9999999999999999999999:")
	f.Fuzz(func(t *testing.T, tag string) {
		slot, n, _, own := parseTag(tag)
		if own != strings.HasPrefix(tag, ownPrefix) || n < 0 || slot != "" && !own {
			t.Errorf("%q is read as %q %d %v", tag, slot, n, own)
		}
	})
}

func TestOneThousandBlocksWithTwentyPortsStaySmall(t *testing.T) {
	members := many(60_000, -1).entries // every other address, so that nothing merges
	var set []netip.Prefix
	for i := 0; i < len(members); i += 2 {
		set = append(set, members[i].src)
	}
	var rules []api.ContivRule
	for i := range 20 {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(1), Protocol: api.TCP, DstPort: api.Port(uint16(1000 + 7*i))})
	}
	x := newExpander(func(api.SetID) []netip.Prefix { return set })
	got, err := x.expand(&cache.Table{Rules: append(rules, api.ContivRule{})}, 0, 21)
	if err != nil || len(got.entries) != 30_000+21+2 {
		t.Errorf("%d entries, %v", len(got.entries), err)
	}
}
