package configurator

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// span is an inclusive range of destination ports of one protocol, with the
// policy rules that permit it: strictly ascending indexes into a table of origins.
// Of a protocol without ports, and of any protocol, the range is whole.
type span struct {
	protocol    api.Protocol
	first, last uint16
	origins     []int32
}

// anySpan is every port of every protocol.
func anySpan(origins []int32) span {
	return span{protocol: api.AnyProtocol, last: 65535, origins: origins}
}

// portRange returns the range in the form that rules have.
func (s span) portRange() api.PortRange { return api.Ports(s.first, s.last) }

// portSet is a set of ports in canonical form: by protocol and port, no two spans
// of a protocol overlap or touch, and any protocol stands alone.
type portSet []span

// newPortSet merges spans in any order into the fewest. A merged span has the
// origins of all its parts. It reorders raw, but not what it refers to.
func newPortSet(raw []span) portSet {
	if isCanonical(raw) {
		return raw
	}
	slices.SortFunc(raw, compareSpans)
	if raw[0].protocol == api.AnyProtocol {
		// Everything else is covered by the spans of any protocol, which come first.
		n := slices.IndexFunc(raw, func(s span) bool { return s.protocol != api.AnyProtocol })
		if n >= 0 {
			raw = raw[:n]
		}
	}
	set := make(portSet, 0, len(raw))
	for _, s := range raw {
		if n := len(set) - 1; n >= 0 && set[n].protocol == s.protocol && int(s.first) <= int(set[n].last)+1 {
			set[n].last = max(set[n].last, s.last)
			set[n].origins = append(set[n].origins, s.origins...)
			continue
		}
		s.origins = slices.Clip(s.origins) // so that appending copies what others share
		set = append(set, s)
	}
	for i := range set {
		if !strictlyAscending(set[i].origins) { // then it was merged, and is not shared
			slices.Sort(set[i].origins)
			set[i].origins = slices.Compact(set[i].origins)
		}
	}
	return set
}

// isCanonical reports whether spans are a port set as they are.
func isCanonical(raw []span) bool {
	for i := 1; i < len(raw); i++ {
		a, b := raw[i-1], raw[i]
		apart := a.protocol < b.protocol || a.protocol == b.protocol && int(a.last)+1 < int(b.first)
		if !apart || a.protocol == api.AnyProtocol {
			return false
		}
	}
	return len(raw) < 2 || !slices.ContainsFunc(raw, func(s span) bool { return !strictlyAscending(s.origins) })
}

// with returns the ports of both sets, without origins. It changes p.
func (p portSet) with(o portSet) portSet {
	for _, s := range o {
		p = p.withSpan(s)
	}
	return p
}

func (p portSet) withSpan(s span) portSet {
	s.origins = nil
	switch {
	case p.isAll():
		return p
	case s.protocol == api.AnyProtocol:
		return append(p[:0], s)
	}
	i, _ := slices.BinarySearchFunc(p, s, func(e, s span) int { // the first that ends beside s or later
		return cmp.Or(cmp.Compare(e.protocol, s.protocol), cmp.Compare(int(e.last)+1, int(s.first)))
	})
	j := i
	for ; j < len(p) && p[j].protocol == s.protocol && int(p[j].first) <= int(s.last)+1; j++ {
		s.first, s.last = min(s.first, p[j].first), max(s.last, p[j].last)
	}
	return slices.Replace(p, i, j, s)
}

func compareSpans(a, b span) int {
	return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
}

func strictlyAscending(s []int32) bool {
	for i := 1; i < len(s); i++ {
		if s[i-1] >= s[i] {
			return false
		}
	}
	return true
}

// isAll reports whether the set holds every port of every protocol.
func (p portSet) isAll() bool { return len(p) > 0 && p[0].protocol == api.AnyProtocol }

// covers reports whether one span of the set holds all of s.
func (p portSet) covers(s span) bool {
	if p.isAll() {
		return true
	}
	i, found := slices.BinarySearchFunc(p, s, func(e, s span) int {
		return cmp.Or(cmp.Compare(e.protocol, s.protocol), cmp.Compare(e.first, s.first))
	})
	if !found {
		i-- // the last span that starts before s
	}
	return i >= 0 && p[i].protocol == s.protocol && p[i].last >= s.last
}

// without returns the spans that none of the covers hold. It keeps spans whole:
// cutting them would not make them fewer.
func (p portSet) without(covers ...portSet) portSet {
	if len(covers) == 0 {
		return p
	}
	covered := func(s span) bool {
		return slices.ContainsFunc(covers, func(c portSet) bool { return c.covers(s) })
	}
	if !slices.ContainsFunc(p, covered) {
		return p
	}
	return slices.DeleteFunc(slices.Clone(p), covered)
}

// appendKey appends the ports, not the origins, as bytes; equal sets have equal keys.
func (p portSet) appendKey(b []byte) []byte {
	for _, s := range p {
		b = append(b, byte(s.protocol))
		b = binary.BigEndian.AppendUint16(b, s.first)
		b = binary.BigEndian.AppendUint16(b, s.last)
	}
	return b
}

// portsOf returns the ports of a policy rule. What cannot be a match is left out:
// a range that is inverted, ports of a protocol that has none.
func portsOf(rule *api.PolicyRule, origin int32) portSet {
	origins := []int32{origin}
	if rule.AnyPort {
		return portSet{anySpan(origins)}
	}
	raw := make([]span, 0, len(rule.Ports))
	for _, p := range rule.Ports {
		first, last := p.Range.Bounds()
		named := p.Protocol.HasPorts() || p.Protocol != api.AnyProtocol && p.Range.IsAny()
		if named && first <= last {
			raw = append(raw, span{p.Protocol, first, last, origins})
		}
	}
	return newPortSet(raw)
}

// intersect returns the ports of both sets, with origins that are made from theirs.
func (p portSet) intersect(o portSet, origins func(mine, others []int32) []int32) portSet {
	var out []span
	for _, a := range p {
		for _, b := range o {
			if m, ok := a.intersect(b); ok {
				m.origins = origins(a.origins, b.origins)
				out = append(out, m)
			}
		}
	}
	return newPortSet(out)
}

// intersect returns the ports of both spans, without origins.
func (s span) intersect(o span) (span, bool) {
	switch {
	case o.protocol == api.AnyProtocol:
	case s.protocol == api.AnyProtocol:
		s.protocol = o.protocol
	case s.protocol != o.protocol:
		return span{}, false
	}
	m := span{protocol: s.protocol, first: max(s.first, o.first), last: min(s.last, o.last)}
	return m, m.first <= m.last
}

// union returns two ascending lists of origins as one.
func union(a, b []int32) []int32 {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
