package configurator

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

// ingressOf returns a policy with ingress rules, all of which allow.
func ingressOf(name string, rules ...api.PolicyRule) *api.ContivPolicy {
	for i := range rules {
		rules[i].Index, rules[i].Action = i, api.RuleAllow
	}
	return &api.ContivPolicy{ID: policyID(name), Tier: api.TierNetworkPolicy, IsolatesIngress: true, Ingress: rules}
}

// rule builds a policy rule from peers and ports as text: peers are "any", "set:N"
// or "CIDR-hole-hole", ports are "any", "tcp/80", "udp/1-5" or "sctp".
func rule(peers, ports string) (r api.PolicyRule) {
	for p := range strings.FieldsSeq(peers) {
		var id uint64
		switch {
		case p == "any":
			r.AnyPeer = true
		case strings.HasPrefix(p, "set:"):
			if _, err := fmt.Sscanf(p, "set:%d", &id); err != nil {
				panic(err)
			}
			r.Sets = append(r.Sets, api.SetID(id))
		default:
			parts := strings.Split(p, "-")
			b := api.IPBlock{CIDR: pfx(parts[0])}
			for _, e := range parts[1:] {
				b.Except = append(b.Except, pfx(e))
			}
			r.Blocks = append(r.Blocks, b)
		}
	}
	for p := range strings.FieldsSeq(ports) {
		if p == "any" {
			r.AnyPort = true
			continue
		}
		name, text, ranged := strings.Cut(p, "/")
		port := api.PolicyPort{}
		if err := port.Protocol.UnmarshalText([]byte(name)); err != nil {
			panic(err)
		}
		if ranged {
			if err := port.Range.UnmarshalText([]byte(text)); err != nil {
				panic(err)
			}
		}
		r.Ports = append(r.Ports, port)
	}
	return r
}

// text renders rules with short origins: "a0" is rule 0 of policy a, "a!" its
// isolation, "a*" its exemption of the node.
func (g *generated) text() string {
	if g == nil {
		return "open\n"
	}
	var b strings.Builder
	for i, r := range g.rules.Rules() {
		var origins []string
		for _, o := range g.rules.Origins(i) {
			switch o.Rule {
			case api.IsolationRule:
				origins = append(origins, o.Policy.Name+"!")
			case api.NodeRule:
				origins = append(origins, o.Policy.Name+"*")
			default:
				origins = append(origins, fmt.Sprintf("%s%d", o.Policy.Name, o.Rule))
			}
		}
		fmt.Fprintf(&b, "%s; %s\n", r, strings.Join(origins, " "))
	}
	for _, s := range g.sets {
		fmt.Fprintf(&b, "set:%s = %v\n", s.id, s.members)
	}
	return b.String()
}

// derivedAs is text with D for the ID of the derived set, with or without members.
func derivedAs(g *generated, members bool) string {
	text := g.text()
	if i := strings.Index(text, " = "); i >= 0 && !members {
		text = text[:strings.LastIndex(text[:i], "\n")+1]
	}
	for _, s := range g.sets {
		text = strings.ReplaceAll(text, s.id.String(), "D")
	}
	return text
}

var generateTests = []struct {
	name     string
	policies []*api.ContivPolicy
	want     string // without the node, unless the name says so
}{
	{"no policy", nil, "open\n"},
	{"a policy of the other direction only", []*api.ContivPolicy{{ID: policyID("a"), Tier: api.TierNetworkPolicy, IsolatesEgress: true}}, "open\n"},
	{"a policy without rules", []*api.ContivPolicy{ingressOf("a")}, "deny any any -> any; a!\n"},
	{"rules of a policy that does not isolate are ignored", []*api.ContivPolicy{
		{ID: policyID("a"), Tier: api.TierNetworkPolicy, IsolatesEgress: true, Ingress: ingressOf("", rule("any", "any")).Ingress}, ingressOf("b"),
	}, "deny any any -> any; b!\n"},
	{"everything for everyone is a single permit", []*api.ContivPolicy{ingressOf("b", rule("set:300", "tcp/80"), rule("any", "any")), ingressOf("a", rule("any", "any"))},
		"permit any any -> any; a0 b1\n"},
	{"all ports of a set", []*api.ContivPolicy{ingressOf("a", rule("set:300", "any"))},
		"permit any set:000000000000012c -> any; a0\ndeny any any -> any; a!\n"},
	{"ports are merged into the fewest ranges", []*api.ContivPolicy{ingressOf("a", rule("set:300", "tcp/80 tcp/82 tcp/81 tcp/90-95 tcp/93-100 udp/101 tcp/443")), ingressOf("b", rule("set:300", "tcp/83"))},
		`permit tcp set:000000000000012c -> any port 443; a0
permit tcp set:000000000000012c -> any port 80-83; a0 b0
permit tcp set:000000000000012c -> any port 90-100; a0
permit udp set:000000000000012c -> any port 101; a0
deny any any -> any; a! b!
`},
	{"all ports of a protocol", []*api.ContivPolicy{ingressOf("a", rule("any", "sctp udp/53 udp")), ingressOf("b", rule("set:300", "sctp/7 tcp/1"))},
		"permit tcp set:000000000000012c -> any port 1; b0\npermit udp any -> any; a0\npermit sctp any -> any; a0\ndeny any any -> any; a! b!\n"},
	{"the highest and the lowest port", []*api.ContivPolicy{ingressOf("a", rule("any", "tcp/65535 tcp/1-2 udp/0-65535"))},
		"permit tcp any -> any port 65535; a0\npermit tcp any -> any port 1-2; a0\npermit udp any -> any; a0\ndeny any any -> any; a!\n"},
	{"a port of one peer is covered by any port of it", []*api.ContivPolicy{ingressOf("a", rule("set:300", "tcp/80"), rule("set:300", "any"))},
		"permit any set:000000000000012c -> any; a1\ndeny any any -> any; a!\n"},
	{"what any peer may is not said of peers again", []*api.ContivPolicy{ingressOf("a", rule("set:300 10.0.0.0/8", "tcp/80 tcp/443"), rule("any", "tcp/80-90"))},
		`permit tcp set:000000000000012c -> any port 443; a0
permit tcp 10.0.0.0/8 -> any port 443; a0
permit tcp any -> any port 80-90; a1
deny any any -> any; a!
`},
	{"a block in another one", []*api.ContivPolicy{ingressOf("a", rule("10.1.0.0/16", "tcp/80 tcp/443"), rule("10.0.0.0/8", "tcp/80"), rule("10.1.2.0/24", "tcp/443"))},
		"permit tcp 10.1.0.0/16 -> any port 443; a0\npermit tcp 10.0.0.0/8 -> any port 80; a1\ndeny any any -> any; a!\n"},
	{"halves become a whole, which covers what was left of another", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/9 10.128.0.0/9", "tcp/80"), rule("10.0.0.0/8-10.128.0.0/9", "tcp/80 tcp/443"))},
		"permit tcp 10.0.0.0/9 -> any port 443; a1\npermit tcp 10.0.0.0/8 -> any port 80; a0\ndeny any any -> any; a!\n"},
	{"a derived set within a block", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/8-10.7.7.7/32", "tcp/80 tcp/443"), rule("10.0.0.0/7", "tcp/80"))},
		"permit tcp set:D -> any port 443; a0\npermit tcp 10.0.0.0/7 -> any port 80; a1\ndeny any any -> any; a!\n"},
	{"holes are subtracted", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/8-10.0.0.0/9-10.64.0.0/10", "tcp/80"))},
		"permit tcp 10.128.0.0/9 -> any port 80; a0\ndeny any any -> any; a!\n"},
	{"a hole that another rule permits", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/8-10.1.0.0/16", "tcp/80")), ingressOf("b", rule("10.1.0.0/16", "tcp/80"))},
		"permit tcp 10.0.0.0/8 -> any port 80; a0 b0\ndeny any any -> any; a! b!\n"},
	{"a block that is all hole", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/8-10.0.0.0/8", "any"), rule("11.0.0.0/8-11.0.0.0/9-11.128.0.0/9", "any"))},
		"deny any any -> any; a!\n"},
	{"holes at both ends and within each other", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/29-10.0.0.0/32-10.0.0.4/30-10.0.0.5/32-10.0.0.7/32", "any"))},
		"permit any 10.0.0.1/32 -> any; a0\npermit any 10.0.0.2/31 -> any; a0\ndeny any any -> any; a!\n"},
	{"holes outside of the block", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/8-11.0.0.0/8-fd00::/8", "any"))},
		"permit any 10.0.0.0/8 -> any; a0\ndeny any any -> any; a!\n"},
	{"the end of the address space", []*api.ContivPolicy{ingressOf("a", rule("255.255.255.252/30-255.255.255.255/32 ffff::/16-ffff:8000::/17", "any"))},
		"permit any 255.255.255.254/32 -> any; a0\npermit any 255.255.255.252/31 -> any; a0\npermit any ffff::/17 -> any; a0\ndeny any any -> any; a!\n"},
	{"families are kept apart", []*api.ContivPolicy{ingressOf("a", rule("0.0.0.0/0 ::/0", "tcp/80"), rule("fd00::/8 10.0.0.0/8", "tcp/80"))},
		"permit tcp 0.0.0.0/0 -> any port 80; a0\npermit tcp ::/0 -> any port 80; a0\ndeny any any -> any; a!\n"},
	{"many blocks become a derived set", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.0/24 10.0.2.0/24 10.0.4.0/24 10.0.6.0/24", "tcp/80 tcp/82"), rule("10.0.8.0/24", "tcp/82 tcp/80"))},
		`permit tcp set:D -> any port 80; a0 a1
permit tcp set:D -> any port 82; a0 a1
deny any any -> any; a!
set:D = [10.0.0.0/24 10.0.2.0/24 10.0.4.0/24 10.0.6.0/24 10.0.8.0/24]
`},
	{"equal regions of different ports are one set", []*api.ContivPolicy{
		ingressOf("a", rule("10.0.0.0/24-10.0.0.77/32", "tcp/80")), ingressOf("b", rule("10.0.0.0/24-10.0.0.77/32", "udp"))},
		`permit tcp set:D -> any port 80; a0
permit udp set:D -> any; b0
deny any any -> any; a! b!
set:D = [10.0.0.0/26 10.0.0.64/29 10.0.0.72/30 10.0.0.76/32 10.0.0.78/31 10.0.0.80/28 10.0.0.96/27 10.0.0.128/25]
`},
	{"no peer and no port match nothing", []*api.ContivPolicy{ingressOf("a", rule("", "any"), rule("any", ""), rule("", ""), rule("set:300", ""), rule("10.0.0.0/8", ""))},
		"deny any any -> any; a!\n"},
	{"parts of one rule are one origin", []*api.ContivPolicy{{ID: policyID("a"), Tier: api.TierNetworkPolicy, IsolatesIngress: true, Ingress: []api.PolicyRule{
		{Index: 3, Action: api.RuleAllow, AnyPeer: true, Ports: tcpPorts(80)}, {Index: 3, Action: api.RuleAllow, AnyPeer: true, Ports: tcpPorts(81)},
	}}}, "permit tcp any -> any port 80-81; a3\ndeny any any -> any; a!\n"},
	{"ports that cannot be", []*api.ContivPolicy{ingressOf("a", api.PolicyRule{AnyPeer: true, Ports: []api.PolicyPort{
		{Protocol: api.AnyProtocol}, {Protocol: api.AnyProtocol, Range: api.Port(80)}, {Protocol: api.ICMP, Range: api.Port(8)}, {Protocol: api.TCP, Range: api.PortRange{First: 9, Last: 8}},
	}})}, "deny any any -> any; a!\n"},
	{"icmp as a whole can be named", []*api.ContivPolicy{ingressOf("a", api.PolicyRule{AnyPeer: true, Ports: []api.PolicyPort{{Protocol: api.ICMP}}})},
		"permit icmp any -> any; a0\ndeny any any -> any; a!\n"},
	{"blocks that cannot be", []*api.ContivPolicy{ingressOf("a", api.PolicyRule{AnyPort: true, Blocks: []api.IPBlock{{}, {CIDR: pfx("10.0.0.0/8"), Except: []netip.Prefix{{}}}}})},
		"deny any any -> any; a!\n"},
	{"host bits are masked", []*api.ContivPolicy{ingressOf("a", rule("10.0.0.5/8-10.200.0.1/9", "any"))},
		"permit any 10.0.0.0/9 -> any; a0\ndeny any any -> any; a!\n"},
	{"a rule that does not allow closes the direction", []*api.ContivPolicy{ingressOf("a", rule("any", "any")), {
		ID: policyID("b"), Tier: api.TierNetworkPolicy, IsolatesIngress: true, Ingress: []api.PolicyRule{{Action: api.RuleDeny, Sets: []api.SetID{300}, AnyPort: true}}}},
		"deny any any -> any; a! b!\n"},
	{"a policy of another tier without rules in the direction does not matter", []*api.ContivPolicy{{
		ID: policyID("c"), Tier: api.TierBaseline, Egress: []api.PolicyRule{{Action: api.RuleDeny, AnyPeer: true, AnyPort: true}}}},
		"open\n"},
}

func TestGenerate(t *testing.T) {
	for _, tt := range generateTests {
		t.Run(tt.name, func(t *testing.T) {
			got := generate(api.Ingress, tt.policies, false)
			text := got.text()
			if got != nil {
				text = derivedAs(got, strings.Contains(tt.want, "set:D ="))
			}
			if diff := cmp.Diff(tt.want, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGenerateNamesDestinationOfEgress(t *testing.T) {
	p := &api.ContivPolicy{ID: policyID("a"), Tier: api.TierNetworkPolicy, IsolatesEgress: true, Egress: []api.PolicyRule{rule("set:300 10.0.0.0/8", "tcp/80")}}
	p.Egress[0].Action = api.RuleAllow
	want := `permit tcp any -> set:000000000000012c port 80; a0
permit tcp any -> 10.0.0.0/8 port 80; a0
deny any any -> any; a!
`
	got := generate(api.Egress, []*api.ContivPolicy{p}, false)
	if diff := cmp.Diff(want, got.text()); diff != "" {
		t.Error(diff)
	}
	if o := got.rules.Origins(0)[0]; o.Direction != api.Egress {
		t.Errorf("origin %s, want one of egress", o)
	}
}

func TestGenerateExemptsNode(t *testing.T) {
	tests := []struct {
		name     string
		policies []*api.ContivPolicy
		want     string
	}{
		{"first of all", []*api.ContivPolicy{ingressOf("a", rule("set:300", "tcp/80")), ingressOf("b")},
			"permit any set:node -> any; a* b*\npermit tcp set:000000000000012c -> any port 80; a0\ndeny any any -> any; a! b!\n"},
		{"also when closed", []*api.ContivPolicy{{ID: policyID("c"), Tier: api.TierNetworkPolicy, IsolatesIngress: true, Ingress: []api.PolicyRule{{}}}},
			"permit any set:node -> any; c*\ndeny any any -> any; c!\n"},
		{"but not said when everyone may everything", []*api.ContivPolicy{ingressOf("a", rule("any", "any"))}, "permit any any -> any; a0\n"},
		{"and not said when nothing is restricted", nil, "open\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, generate(api.Ingress, tt.policies, true).text()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGenerateOfNestedBlocksIsFast(t *testing.T) {
	// A peer of 5000 ports surrounds 5000 blocks, each with a port of its own that the outer one
	// permits: quadratic work would take minutes.
	outer, inner := rule("10.0.0.0/8", ""), make([]api.PolicyRule, 5000)
	for i := range inner {
		outer.Ports = append(outer.Ports, tcpPorts(uint16(1000+2*i))...)
		inner[i] = api.PolicyRule{Ports: tcpPorts(uint16(1000 + 2*i)), Blocks: []api.IPBlock{{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}}}
	}
	g := generate(api.Ingress, []*api.ContivPolicy{ingressOf("a", append(inner, outer)...)}, false)
	if g.rules.Len() != 5001 || len(g.sets) != 0 {
		t.Errorf("%d rules and %d sets, want 5001 and none", g.rules.Len(), len(g.sets))
	}
}
