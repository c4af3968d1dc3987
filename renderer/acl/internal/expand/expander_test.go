package expand

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
	"github.com/sluice-net/sluice/renderer/cache"
)

func masked(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// of returns an Expander for sets with the given members.
func of(members func(api.SetID) []netip.Prefix) *Expander {
	return New(func(id api.SetID) cache.Families {
		c := cache.New(api.Egress)
		c.UpdateSet(id, members(id), nil)
		return c.Aggregated(id)
	})
}

func TestExpandUsesFewestPrefixesPerFamily(t *testing.T) {
	sets := map[api.SetID][]netip.Prefix{
		1: masked("10.0.0.0/32", "10.0.0.1/32", "10.0.0.3/32", "fd00::/128", "fd00::1/128"),
		2: masked("10.9.0.0/16"),
		4: masked("10.8.0.0/32", "10.8.0.2/32", "10.8.0.4/32", "10.8.0.6/32", "10.8.0.8/32", "10.8.0.10/32", "10.8.0.12/32", "10.8.0.14/32"),
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
		"what is hidden is left out": {[]api.ContivRule{with(tcp, api.PrefixNet(masked("10.0.0.0/30")[0]), api.Net{}), with(tcp, api.SetNet(1), api.Net{})}, []string{
			"reflect 10.0.0.0/30 0.0.0.0/0 tcp {80 80}", "reflect fd00::/127 ::/0 tcp {80 80}"}},
		"what is hidden by its destination is left out": {[]api.ContivRule{with(permit, api.SetNet(1), api.PrefixNet(masked("10.9.0.0/16")[0])), with(tcp, api.SetNet(1), api.PrefixNet(masked("10.9.1.0/24")[0])), {}}, []string{
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
			x := of(func(id api.SetID) []netip.Prefix { return sets[id] })
			x.enough = func(api.Protocol) int { return 2 }
			got, err := x.Expand(&cache.Table{Rules: c.rules}, 0, len(c.rules))
			if err != nil || !slices.Equal(entriestest.Text(got.Entries), c.want) || len(got.Rules) != len(got.Entries) {
				t.Errorf("got %q, %v; want %q", entriestest.Text(got.Entries), err, c.want)
			}
		})
	}
}

func TestExpandRefusesHugeTable(t *testing.T) {
	var members []netip.Prefix
	for _, e := range entriestest.Many(40_000, -1).Entries {
		if e.Src.Prefix().Addr().As4()[3]%2 == 0 {
			members = append(members, e.Src.Prefix())
		}
	}
	x := of(func(api.SetID) []netip.Prefix { return members })
	r := []api.ContivRule{{Action: api.Permit, Src: api.SetNet(1), Dst: api.SetNet(1)}}
	if _, err := x.Expand(&cache.Table{Rules: r}, 0, 1); !errors.Is(err, entries.ErrTooLarge) {
		t.Errorf("error %v, want %v", err, entries.ErrTooLarge)
	}
}

func TestExpandKeepsCrossProductsSmall(t *testing.T) {
	members := entriestest.Many(60_000, -1).Entries // every other address, so that nothing can be merged
	var set []netip.Prefix
	for i := 0; i < len(members); i += 2 {
		set = append(set, members[i].Src.Prefix())
	}
	var rules []api.ContivRule
	for i := range 20 {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(1), Protocol: api.TCP, DstPort: api.Port(uint16(1000 + 7*i))})
	}
	x := of(func(api.SetID) []netip.Prefix { return set })
	got, err := x.Expand(&cache.Table{Rules: append(rules, api.ContivRule{})}, 0, 21)
	if err != nil || len(got.Entries) != 30_000+21+2 {
		t.Errorf("%d entries, %v", len(got.Entries), err)
	}
}
