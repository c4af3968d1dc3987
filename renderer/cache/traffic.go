package cache

import (
	"encoding/binary"
	"slices"
	"unique"

	"github.com/sluice-net/sluice/api"
)

// traffic is what may pass between one pair of addresses: a set of protocols and
// ports. It stands for the canonical encoding of a portSet, so that equal sets are
// equal values, which are compared and hashed like a pointer.
type traffic unique.Handle[string]

// everything and nothing are the two ends.
var (
	everything = portSet{others: true}.encode()
	nothing    = portSet{}.encode()
)

// portSet is the decoded form of traffic. The protocols named are those that
// differ from all others: sorted, and never every port where others is set nor
// no port where it is not.
type portSet struct {
	named  []protocolPorts
	others bool
}

type protocolPorts struct {
	protocol api.Protocol
	ports    bands
}

// of returns the ports of a protocol.
func (s portSet) of(p api.Protocol) bands {
	for _, n := range s.named {
		if n.protocol == p {
			return n.ports
		}
	}
	if s.others {
		return everyPort
	}
	return nil
}

// with names a protocol, unless it does as all others do. Protocols must be
// added in order.
func (s portSet) with(p api.Protocol, ports bands) portSet {
	redundant := len(ports) == 0
	if s.others {
		redundant = ports.equal(everyPort)
	}
	if !redundant {
		s.named = append(s.named, protocolPorts{p, ports})
	}
	return s
}

func (s portSet) encode() traffic {
	b := []byte{0}
	if s.others {
		b[0] = 1
	}
	for _, n := range s.named {
		b = append(b, byte(n.protocol))
		b = binary.BigEndian.AppendUint32(b, uint32(len(n.ports)))
		for _, x := range n.ports {
			b = appendSpan(b, x.src)
			b = binary.BigEndian.AppendUint32(b, uint32(len(x.dst)))
			for _, d := range x.dst {
				b = appendSpan(b, d)
			}
		}
	}
	return traffic(unique.Make(string(b)))
}

func appendSpan(b []byte, s span) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(s.first))
	return binary.BigEndian.AppendUint16(b, uint16(s.last))
}

// decode reverses encode; no other text reaches it.
func (t traffic) decode() portSet {
	b := []byte(unique.Handle[string](t).Value())
	u16 := func() int32 { v := binary.BigEndian.Uint16(b); b = b[2:]; return int32(v) }
	u32 := func() int { v := binary.BigEndian.Uint32(b); b = b[4:]; return int(v) }
	s := portSet{others: b[0] == 1}
	for b = b[1:]; len(b) > 0; {
		n := protocolPorts{protocol: api.Protocol(b[0])}
		b = b[1:]
		n.ports = make(bands, u32())
		for i := range n.ports {
			n.ports[i].src = span{u16(), u16()}
			n.ports[i].dst = make(spans, u32())
			for j := range n.ports[i].dst {
				n.ports[i].dst[j] = span{u16(), u16()}
			}
		}
		s.named = append(s.named, n)
	}
	return s
}

// protocols returns all protocols that one of the sets names, sorted.
func protocols(a, b portSet) []api.Protocol {
	var out []api.Protocol
	for _, s := range []portSet{a, b} {
		for _, n := range s.named {
			out = append(out, n.protocol)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intersect returns what is in both sets.
func intersect(a, b traffic) traffic {
	x, y := a.decode(), b.decode()
	out := portSet{others: x.others && y.others}
	for _, p := range protocols(x, y) {
		out = out.with(p, x.of(p).intersect(y.of(p)))
	}
	return out.encode()
}

// allowed returns what an ordered list of rules permits, first match first,
// whatever the addresses are: the caller has picked the rules that match them.
func allowed(rules []api.ContivRule) traffic {
	out := portSet{others: permits(rules, 0, 0, 0)}
	for _, p := range named(rules) {
		if p.HasPorts() {
			out = out.with(p, allowedPorts(rules, p))
		} else if permits(rules, p, 0, 0) {
			out = out.with(p, everyPort)
		} else {
			out = out.with(p, nil)
		}
	}
	return out.encode()
}

// named returns the protocols that can differ from all others, sorted.
func named(rules []api.ContivRule) []api.Protocol {
	var out []api.Protocol
	for _, r := range rules {
		switch {
		case r.Protocol != api.AnyProtocol:
			out = append(out, r.Protocol)
		case !r.SrcPort.IsAny() || !r.DstPort.IsAny():
			out = append(out, api.TCP, api.UDP, api.SCTP)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// permits says what the first rule that matches does; no rule permits nothing.
func permits(rules []api.ContivRule, p api.Protocol, src, dst uint16) bool {
	for _, r := range rules {
		if r.MatchesPorts(p, src, dst) {
			return r.Action == api.Permit
		}
	}
	return false
}

// allowedPorts evaluates the rules for every pair of ports of one protocol. The
// source ports are cut where rules begin or end; in between all behave alike.
func allowedPorts(rules []api.ContivRule, p api.Protocol) bands {
	cuts := []int32{0}
	var mine []api.ContivRule
	for _, r := range rules {
		if r.Protocol != api.AnyProtocol && r.Protocol != p {
			continue
		}
		mine = append(mine, r)
		first, last := r.SrcPort.Bounds()
		cuts = append(cuts, int32(first), int32(last)+1)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(append(cuts, maxPort+1))
	var out bands
	for i, first := range cuts[:len(cuts)-1] {
		out = out.add(span{first, cuts[i+1] - 1}, allowedFrom(mine, uint16(first)))
	}
	return out
}

// allowedFrom returns the destination ports that are permitted from a source port. Rules in a row
// that do the same are one set of ports: most lists are permits and one deny.
func allowedFrom(rules []api.ContivRule, src uint16) spans {
	open, out := allPorts, spans(nil)
	for len(rules) > 0 && len(open) > 0 {
		action, row := rules[0].Action, spans(nil)
		for len(rules) > 0 && rules[0].Action == action {
			if rules[0].SrcPort.Contains(src) {
				first, last := rules[0].DstPort.Bounds()
				row = append(row, span{int32(first), int32(last)})
			}
			rules = rules[1:]
		}
		row = normal(row)
		if action == api.Permit {
			out = append(out, open.intersect(row)...)
		}
		open = open.minus(row)
	}
	return normal(out)
}

// emit writes the set as the fewest rules that decide all traffic; the first
// match decides. The rules have no addresses.
//
// A port range cannot say "port 0 alone" (it would read as any port). No such
// range is ever permitted: port 0, which no protocol uses, is then closed.
func emit(t traffic) []api.ContivRule {
	s := t.decode()
	var out []api.ContivRule
	for _, n := range s.named {
		permits, _ := portRules(api.Permit, n.protocol, n.ports)
		if !s.others {
			out = append(out, permits...)
			continue
		}
		if denies, exact := portRules(api.Deny, n.protocol, n.ports.complement()); exact {
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

// portRules returns a rule per range of ports, and false when it had to leave out
// port 0 alone.
func portRules(action api.Action, p api.Protocol, ports bands) (rules []api.ContivRule, exact bool) {
	exact = true
	for _, x := range ports {
		for _, d := range x.dst {
			if x.src.last == 0 || d.last == 0 {
				exact = false
				continue
			}
			rules = append(rules, api.ContivRule{Action: action, Protocol: p, SrcPort: portRange(x.src), DstPort: portRange(d)})
		}
	}
	return rules, exact
}

func portRange(s span) api.PortRange { return api.Ports(uint16(s.first), uint16(s.last)) }
