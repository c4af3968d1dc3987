package configurator

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// ports is an inclusive range of destination ports of one protocol. For a protocol without ports,
// and for any protocol, the range is complete.
type ports struct {
	protocol    api.Protocol
	first, last uint16
}

// span is a range of ports with the policy rules that permit it: strictly ascending indexes into a
// table of origins.
type span struct {
	ports
	origins []int32
}

// anySpan returns the span of every port of every protocol.
func anySpan(origins []int32) span {
	return span{ports{protocol: api.AnyProtocol, last: 65535}, origins}
}

// portRange returns the range in the form that rules have.
func (s ports) portRange() api.PortRange { return api.Ports(s.first, s.last) }

// all returns the range itself, also of a span.
func (s ports) all() ports { return s }

// portSet is a set of ports in canonical form: sorted by protocol and port; the spans of a protocol
// neither overlap nor touch; a span of any protocol is the only one.
type portSet []span

// newPortSet merges spans in any order into the fewest possible. A merged span has the origins of
// all its parts. It reorders raw, but does not modify what raw refers to.
func newPortSet(raw []span) portSet {
	if isCanonical(raw) {
		return raw
	}
	slices.SortFunc(raw, compareSpans)
	if raw[0].protocol == api.AnyProtocol {
		// The spans of any protocol, which come first, cover everything else.
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
		s.origins = slices.Clip(s.origins) // so that appending copies shared memory
		set = append(set, s)
	}
	for i := range set {
		if !strictlyAscending(set[i].origins) { // only merged ones, which are not shared
			slices.Sort(set[i].origins)
			set[i].origins = slices.Compact(set[i].origins)
		}
	}
	return set
}

// isCanonical reports whether spans already form a port set.
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

// covered is a set of ports in canonical form, like a portSet, without origins.
type covered []ports

// with returns the union of both sets. It modifies c.
func (c covered) with(o portSet) covered {
	for _, s := range o {
		c = c.withPorts(s.ports)
	}
	return c
}

func (c covered) withPorts(s ports) covered {
	switch {
	case c.isAll():
		return c
	case s.protocol == api.AnyProtocol:
		return append(c[:0], s)
	}
	// the first that ends next to s or later
	i, _ := slices.BinarySearchFunc(c, s, func(e, s ports) int {
		return cmp.Or(cmp.Compare(e.protocol, s.protocol), cmp.Compare(int(e.last)+1, int(s.first)))
	})
	j := i
	for ; j < len(c) && c[j].protocol == s.protocol && int(c[j].first) <= int(s.last)+1; j++ {
		s.first, s.last = min(s.first, c[j].first), max(s.last, c[j].last)
	}
	return slices.Replace(c, i, j, s)
}

// isAll reports whether the set contains every port of every protocol.
func (c covered) isAll() bool { return len(c) > 0 && c[0].protocol == api.AnyProtocol }

// isSlice reports whether two sets are the same slice.
func (c covered) isSlice(o covered) bool {
	return len(c) == len(o) && (len(c) == 0 || &c[0] == &o[0])
}

// inOrder returns the ports in the order of rules.
func (p portSet) inOrder() portSet {
	byRule := func(a, b span) int {
		return cmp.Or(cmp.Compare(a.protocol-1, b.protocol-1), a.portRange().Compare(b.portRange())) // any is last
	}
	if slices.IsSortedFunc(p, byRule) {
		return p
	}
	p = slices.Clone(p)
	slices.SortFunc(p, byRule)
	return p
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

// isAll reports whether the set contains every port of every protocol.
func (p portSet) isAll() bool { return len(p) > 0 && p[0].protocol == api.AnyProtocol }

// ranged is what a set of ports consists of.
type ranged interface{ all() ports }

// covers reports whether one range of a set in canonical form contains all of s.
func covers[E ranged](set []E, s ports) bool {
	i, found := slices.BinarySearchFunc(set, s, func(e E, s ports) int {
		p := e.all()
		return cmp.Or(cmp.Compare(p.protocol, s.protocol), cmp.Compare(p.first, s.first))
	})
	if len(set) > 0 && set[0].all().protocol == api.AnyProtocol {
		return true
	}
	if !found {
		i-- // the last range that starts before s
	}
	return i >= 0 && set[i].all().protocol == s.protocol && set[i].all().last >= s.last
}

// without returns the spans that none of the covers contain. It does not cut spans: that would not
// reduce their number.
func without[S ~[]E, E ranged](p portSet, by ...S) portSet {
	isCovered := func(s span) bool {
		for _, c := range by {
			if len(c) > 0 && covers(c, s.ports) {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(p, isCovered) {
		return p
	}
	return slices.DeleteFunc(slices.Clone(p), isCovered)
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

// portsOf returns the ports of a policy rule. It leaves out what cannot match: inverted ranges, and
// ports of a protocol without ports.
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
			raw = append(raw, span{ports{p.Protocol, first, last}, origins})
		}
	}
	return newPortSet(raw)
}

// intersect returns the intersection of two sets, with origins computed from theirs.
func intersect[E ranged](p portSet, o []E, origins func(mine []int32, other E) []int32) portSet {
	var out []span
	for _, a := range p {
		from := 0
		if a.protocol != api.AnyProtocol && len(o) > 0 && o[0].all().protocol != api.AnyProtocol {
			// the first that ends in a or later
			from, _ = slices.BinarySearchFunc(o, a.ports, func(e E, a ports) int {
				return cmp.Or(cmp.Compare(e.all().protocol, a.protocol), cmp.Compare(e.all().last, a.first))
			})
		}
		for _, b := range o[from:] {
			m, ok := a.intersect(b.all())
			if !ok {
				break // so are the following
			}
			out = append(out, span{m, origins(a.origins, b)})
		}
	}
	return newPortSet(out)
}

// intersect returns the intersection of both ranges.
func (s ports) intersect(o ports) (ports, bool) {
	switch {
	case o.protocol == api.AnyProtocol:
	case s.protocol == api.AnyProtocol:
		s.protocol = o.protocol
	case s.protocol != o.protocol:
		return ports{}, false
	}
	m := ports{s.protocol, max(s.first, o.first), min(s.last, o.last)}
	return m, m.first <= m.last
}

// union merges two ascending lists of origins.
func union(a, b []int32) []int32 {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
