package ligato

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// ErrTooLarge is returned by Apply when a table does not fit into one ACL. Its pods keep their
// rules, and a pod without an older table is blocked. Everything else is published. It is a
// renderer.Refusal.
var ErrTooLarge = renderer.Refusal("the rules do not fit into an etcd value")

const (
	// maxRules is the maximum number of rules of one ACL. Longer lists strain VPP's memory, and
	// usually exceed maxValue first.
	maxRules = 16_000
	// maxValue is the maximum size of a value in bytes. etcd limits requests to 1.5 MiB by default.
	maxValue = 1_400_000
)

// expander converts tables to rules of the agent, and memoizes the prefixes of sets.
type expander struct {
	infra []wireRule // at the start of every table
	nets  *cache.Nets
}

// content expands a table behind the rules for exempt traffic.
func (x *expander) content(t *cache.Table) (content, error) {
	rules := slices.Clone(x.infra)
	from := slices.Repeat([]int32{-1}, len(rules))
	for i, r := range t.Rules {
		l4, ok := transportOf(r)
		if !ok {
			continue
		}
		src, dst := x.nets.Of(r.Src), x.nets.Of(r.Dst)
		if len(rules)+pairs(src, dst) > maxRules {
			return content{}, fmt.Errorf("table %s: more than %d rules: %w", t.Name(), maxRules, ErrTooLarge)
		}
		for family := range src {
			for _, d := range dst[family] {
				for _, s := range src[family] {
					rules = append(rules, l4.rule(s, d))
					from = append(from, int32(i))
				}
			}
		}
	}
	c := newContent(rules, from)
	if len(c.rules) > maxValue {
		return content{}, fmt.Errorf("table %s: %d bytes, at most %d fit: %w", t.Name(), len(c.rules), maxValue, ErrTooLarge)
	}
	return c, nil
}

// rule returns the rule for two prefixes of one family.
func (r wireRule) rule(src, dst netip.Prefix) wireRule {
	r.IPRule.IP.Source, r.IPRule.IP.Destination = src.String(), dst.String()
	return r
}

// transportOf returns a rule of a table without its networks. ok is false for a rule that the agent
// cannot express and that may be omitted: a permit for SCTP ports. A deny of such ports becomes a
// deny of all SCTP ports, so that nothing behind it permits them.
func transportOf(r api.ContivRule) (out wireRule, ok bool) {
	out.Action = denyAction
	if r.Action == api.Permit {
		out.Action = reflectAction
		if namesLostPort(&r) {
			return out, false
		}
	}
	ports := wireUDP{Destination: portsOf(r.DstPort), Source: portsOf(r.SrcPort)}
	switch r.Protocol {
	case api.TCP:
		out.IPRule.TCP = &wireTCP{wireUDP: ports}
	case api.UDP:
		out.IPRule.UDP = &ports
	case api.ICMP, api.ICMPv6:
		out.IPRule.ICMP = icmp(r.Protocol == api.ICMPv6, 0, maxICMP)
	default:
		out.IPRule.IP.Protocol = uint8(r.Protocol)
	}
	return out, true
}

// namesLostPort reports whether the rule names ports of a protocol whose ports the agent's model
// cannot express.
func namesLostPort(r *api.ContivRule) bool {
	return r.Protocol != api.TCP && r.Protocol != api.UDP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// portsOf sets both bounds: the agent does not treat a missing bound as any port.
func portsOf(p api.PortRange) wirePorts {
	first, last := p.Bounds()
	return wirePorts{first, last}
}

// maxICMP is the largest ICMP type and code.
const maxICMP = 255

// icmp matches a range of types.
func icmp(v6 bool, first, last uint16) *wireICMP {
	return &wireICMP{V6: v6, Codes: wireRange{0, maxICMP}, Types: wireRange{first, last}}
}

// TCP flags that the reflect ACL matches.
const (
	flagSYN = 2
	flagACK = 16
)

// reflectContent permits all input. Only the first packet of a TCP flow creates a session, so a
// reply of a pod never permits packets of its peer. It never changes.
func reflectContent() content {
	every := wireUDP{Destination: portsOf(api.AnyPort), Source: portsOf(api.AnyPort)}
	var rules []wireRule
	for _, side := range cache.Everywhere {
		all := side[0]
		rules = append(rules,
			wireRule{reflectAction, wireIPRule{TCP: &wireTCP{every, flagSYN | flagACK, flagSYN}}}.rule(all, all),
			wireRule{permitAction, wireIPRule{TCP: &wireTCP{wireUDP: every}}}.rule(all, all),
			wireRule{Action: reflectAction}.rule(all, all))
	}
	return newContent(rules, nil)
}

// closedContent denies everything except exempt traffic.
func closedContent(infra []wireRule) content {
	rules := slices.Clone(infra)
	for _, side := range cache.Everywhere {
		rules = append(rules, wireRule{Action: denyAction}.rule(side[0], side[0]))
	}
	return newContent(rules, nil)
}
