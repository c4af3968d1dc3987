// Package traffic computes with sets of protocols and ports: what an ordered list of rules permits,
// what two sets have in common, and which rules express a set. It is pure.
package traffic

import (
	"encoding/binary"
	"slices"
	"unique"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/internal/ports"
)

// Traffic is the set of protocols and ports that one pair of addresses may use, and the part of it
// that is audited, see api.ContivRule. Both are handles of the canonical encoding of a portSet:
// equal sets are equal values, and are compared and hashed like pointers.
type Traffic struct{ allowed, audited handle }

type handle unique.Handle[string]

// IsAudited reports whether a part of the traffic is audited.
func (t Traffic) IsAudited() bool { return t.audited != nothing }

// Everything is all traffic, none of it audited.
var Everything = Traffic{portSet{others: true}.encode(), nothing}

// Nothing is no traffic.
var Nothing = Traffic{nothing, nothing}

// nothing is the empty set.
var nothing = portSet{}.encode()

// Intersect returns what both sets contain. What one of them audits of that is audited.
func Intersect(a, b Traffic) Traffic {
	x, y := a.allowed.decode(), b.allowed.decode()
	both := intersect(x, y)
	if a.audited == nothing && b.audited == nothing {
		return Traffic{both.encode(), nothing}
	}
	plain := intersect(both, intersect(complement(a.audited.decode()), complement(b.audited.decode())))
	return Traffic{both.encode(), intersect(both, complement(plain)).encode()}
}

func intersect(x, y portSet) portSet {
	out := portSet{others: x.others && y.others}
	for _, p := range protocols(x, y) {
		out = out.with(p, x.portsOf(p).Intersect(y.portsOf(p)))
	}
	return out
}

func complement(x portSet) portSet {
	out := portSet{others: !x.others}
	for _, n := range x.named {
		out = out.with(n.protocol, n.ports.Complement())
	}
	return out
}

// portSet is the decoded form of Traffic. It names the protocols that differ from all others,
// sorted: a named protocol never has all ports when others is set, and never has none when others
// is not set.
type portSet struct {
	named  []protocolPorts
	others bool
}

type protocolPorts struct {
	protocol api.Protocol
	ports    ports.Pairs
}

// portsOf returns the ports of a protocol.
func (s portSet) portsOf(p api.Protocol) ports.Pairs {
	for _, n := range s.named {
		if n.protocol == p {
			return n.ports
		}
	}
	if s.others {
		return ports.AllPairs
	}
	return nil
}

// with adds a protocol, unless the protocol behaves like all others. Callers add protocols in
// order.
func (s portSet) with(p api.Protocol, pairs ports.Pairs) portSet {
	redundant := len(pairs) == 0
	if s.others {
		redundant = pairs.Equal(ports.AllPairs)
	}
	if !redundant {
		s.named = append(s.named, protocolPorts{p, pairs})
	}
	return s
}

// protocols returns all protocols that either set names, sorted.
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

func (s portSet) encode() handle {
	b := []byte{0}
	if s.others {
		b[0] = 1
	}
	for _, n := range s.named {
		b = append(b, byte(n.protocol))
		b = binary.BigEndian.AppendUint32(b, uint32(len(n.ports)))
		for _, x := range n.ports {
			b = appendRange(b, x.Src)
			b = binary.BigEndian.AppendUint32(b, uint32(len(x.Dst)))
			for _, d := range x.Dst {
				b = appendRange(b, d)
			}
		}
	}
	return handle(unique.Make(string(b)))
}

func appendRange(b []byte, r ports.Range) []byte {
	b = binary.BigEndian.AppendUint16(b, r.First)
	return binary.BigEndian.AppendUint16(b, r.Last)
}

// decode reverses encode. Only text from encode reaches it.
func (t handle) decode() portSet {
	b := []byte(unique.Handle[string](t).Value())
	u16 := func() uint16 { v := binary.BigEndian.Uint16(b); b = b[2:]; return v }
	u32 := func() int { v := binary.BigEndian.Uint32(b); b = b[4:]; return int(v) }
	s := portSet{others: b[0] == 1}
	for b = b[1:]; len(b) > 0; {
		n := protocolPorts{protocol: api.Protocol(b[0])}
		b = b[1:]
		n.ports = make(ports.Pairs, u32())
		for i := range n.ports {
			n.ports[i].Src = ports.Range{First: u16(), Last: u16()}
			n.ports[i].Dst = make(ports.Set, u32())
			for j := range n.ports[i].Dst {
				n.ports[i].Dst[j] = ports.Range{First: u16(), Last: u16()}
			}
		}
		s.named = append(s.named, n)
	}
	return s
}
