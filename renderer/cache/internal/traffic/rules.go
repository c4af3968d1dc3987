package traffic

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/internal/ports"
)

// Allowed returns what an ordered list of rules permits by first match. It ignores addresses: the
// caller passes only rules that match them.
func Allowed(rules []api.ContivRule) Traffic {
	out := Traffic{allowed(rules).encode(), nothing}
	if !slices.ContainsFunc(rules, func(r api.ContivRule) bool { return r.Audit }) {
		return out
	}
	audited := slices.Clone(rules)
	for i, r := range audited {
		if !r.Audit {
			audited[i].Action = api.Deny
		}
	}
	out.audited = allowed(audited).encode()
	return out
}

func allowed(rules []api.ContivRule) portSet {
	out := portSet{others: permits(rules, 0, 0, 0)}
	for _, p := range named(rules) {
		if p.HasPorts() {
			out = out.with(p, allowedPorts(rules, p))
		} else if permits(rules, p, 0, 0) {
			out = out.with(p, ports.AllPairs)
		} else {
			out = out.with(p, nil)
		}
	}
	return out
}

// named returns the sorted protocols that may differ from all others.
func named(rules []api.ContivRule) (out []api.Protocol) {
	var is [1 << 8]bool
	for i := range rules {
		switch r := &rules[i]; {
		case r.Protocol != api.AnyProtocol:
			is[r.Protocol] = true
		case !r.SrcPort.IsAny() || !r.DstPort.IsAny():
			is[api.TCP], is[api.UDP], is[api.SCTP] = true, true, true
		}
	}
	for p := range is {
		if is[p] {
			out = append(out, api.Protocol(p))
		}
	}
	return out
}

// permits reports whether the first matching rule permits the ports. Without a match it returns
// false.
func permits(rules []api.ContivRule, p api.Protocol, src, dst uint16) bool {
	for _, r := range rules {
		if r.MatchesPorts(p, src, dst) {
			return r.Action == api.Permit
		}
	}
	return false
}

// allowedPorts evaluates the rules for all port pairs of one protocol. It cuts source ports where
// rules begin or end; all ports between two cuts behave alike.
func allowedPorts(rules []api.ContivRule, p api.Protocol) ports.Pairs {
	cuts, mine := []int{0}, make([]*api.ContivRule, 0, len(rules))
	for i := range rules {
		r := &rules[i]
		if r.Protocol != api.AnyProtocol && r.Protocol != p {
			continue
		}
		if mine = append(mine, r); !r.SrcPort.IsAny() {
			first, last := r.SrcPort.Bounds()
			cuts = append(cuts, int(first), int(last)+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(append(cuts, 1<<16))
	var out ports.Pairs
	for i, first := range cuts[:len(cuts)-1] {
		src := ports.Range{First: uint16(first), Last: uint16(cuts[i+1] - 1)}
		out = out.Append(src, allowedFrom(mine, src.First))
	}
	return out
}

// allowedFrom returns the destination ports that are permitted from a source port. It collects
// consecutive rules with the same action into one set of ports: most lists are permits followed by
// one deny.
func allowedFrom(rules []*api.ContivRule, src uint16) ports.Set {
	open, out := ports.All, ports.Set(nil)
	for len(rules) > 0 && len(open) > 0 {
		action, row := rules[0].Action, ports.Set(nil)
		for len(rules) > 0 && rules[0].Action == action {
			if rules[0].SrcPort.Contains(src) {
				row = append(row, ports.Of(rules[0].DstPort))
			}
			rules = rules[1:]
		}
		row = ports.Union(row)
		if action == api.Permit {
			out = append(out, open.Intersect(row)...)
		}
		open = open.Minus(row)
	}
	return ports.Union(out)
}

// Rules writes the set as the fewest rules that decide all traffic by first match. The rules have
// no addresses.
//
// A port range cannot express "port 0 alone": it would read as any port. Such a range is never
// permitted, so port 0, which no protocol uses, stays closed.
func (t Traffic) Rules() []api.ContivRule {
	s := t.allowed.decode()
	if t.IsAudited() {
		return auditedRules(s, t.audited.decode())
	}
	var out []api.ContivRule
	for _, n := range s.named {
		permits, _ := portRules(api.Permit, n.protocol, n.ports)
		if !s.others {
			out = append(out, permits...)
			continue
		}
		if denies, exact := portRules(api.Deny, n.protocol, n.ports.Complement()); exact {
			out = append(out, denies...)
			continue
		}
		out = append(append(out, permits...), api.ContivRule{Action: api.Deny, Protocol: n.protocol})
	}
	rest := api.ContivRule{Action: api.Deny}
	if s.others {
		rest.Action = api.Permit
	}
	return append(out, rest)
}

// auditedRules writes a set of which a part is audited: for each protocol that differs from the
// others its audited ports, its other permitted ports, and a deny of the rest.
func auditedRules(s, audited portSet) (out []api.ContivRule) {
	plain := intersect(s, complement(audited))
	for _, p := range protocols(s, audited) {
		for _, r := range permitsOf(p, audited) {
			r.Audit = true
			out = append(out, r)
		}
		out = append(out, permitsOf(p, plain)...)
		out = append(out, api.ContivRule{Action: api.Deny, Protocol: p})
	}
	rest := api.ContivRule{Audit: audited.others}
	if s.others {
		rest.Action = api.Permit
	}
	return append(out, rest)
}

// permitsOf returns the permits of one protocol.
func permitsOf(p api.Protocol, s portSet) []api.ContivRule {
	rules, _ := portRules(api.Permit, p, s.portsOf(p))
	return rules
}

// portRules returns one rule for each range of ports. exact is false when it left out port 0 alone.
func portRules(action api.Action, p api.Protocol, pairs ports.Pairs) (rules []api.ContivRule, exact bool) {
	exact = true
	for _, x := range pairs {
		for _, d := range x.Dst {
			if x.Src.Last == 0 || d.Last == 0 {
				exact = false
				continue
			}
			rules = append(rules, api.ContivRule{Action: action, Protocol: p, SrcPort: x.Src.PortRange(), DstPort: d.PortRange()})
		}
	}
	return rules, exact
}
