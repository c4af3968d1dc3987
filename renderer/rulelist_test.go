package renderer_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

func TestDigestCoversEveryPartAndOrder(t *testing.T) {
	base := api.ContivRule{
		Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80), SrcPort: api.Port(90),
		Src: api.PrefixNet(netip.MustParsePrefix("10.0.0.0/8")), Dst: api.SetNet(7),
	}
	deny := api.ContivRule{}
	lists := map[string][]api.ContivRule{"base": {base, deny}, "order": {deny, base}, "shorter": {base}, "empty": {}}
	for name, change := range map[string]func(*api.ContivRule){
		"action":           func(r *api.ContivRule) { r.Action = api.Deny },
		"protocol":         func(r *api.ContivRule) { r.Protocol = api.UDP },
		"source":           func(r *api.ContivRule) { r.Src = api.PrefixNet(netip.MustParsePrefix("10.0.0.0/9")) },
		"any source":       func(r *api.ContivRule) { r.Src = api.Net{} },
		"all IPv4":         func(r *api.ContivRule) { r.Src = api.PrefixNet(netip.MustParsePrefix("0.0.0.0/0")) },
		"all IPv6":         func(r *api.ContivRule) { r.Src = api.PrefixNet(netip.MustParsePrefix("::/0")) },
		"destination":      func(r *api.ContivRule) { r.Dst = api.SetNet(8) },
		"source port":      func(r *api.ContivRule) { r.SrcPort = api.AnyPort },
		"destination port": func(r *api.ContivRule) { r.DstPort = api.Ports(80, 81) },
	} {
		r := base
		change(&r)
		lists[name] = []api.ContivRule{r, deny}
	}
	seen := map[renderer.Digest]string{}
	for name, rules := range lists {
		d := renderer.NewRuleList(rules, nil).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
		if again := renderer.DigestRules(rules); again != d {
			t.Errorf("%s: the digest is not stable", name)
		}
	}
}

func TestOriginsTakeNoPartInIdentity(t *testing.T) {
	rules := []api.ContivRule{{}}
	o := []api.Origin{{Policy: api.PolicyID{Namespace: "a", Name: "b"}, Rule: api.IsolationRule}}
	with, without := renderer.NewRuleList(rules, [][]api.Origin{o}), renderer.NewRuleList(rules, nil)
	if with.Digest() != without.Digest() {
		t.Error("origins change the digest")
	}
	if len(with.Origins(0)) != 1 || without.Origins(0) != nil {
		t.Error("origins are not kept as given")
	}
}

func TestRuleListNilIsEmpty(t *testing.T) {
	var l *renderer.RuleList
	if l.Rules() != nil || l.Origins(0) != nil || l.Digest() != (renderer.Digest{}) {
		t.Error("a nil list is not empty")
	}
}
