// Package ports computes with sets of ports, and with sets of pairs of a source and a destination
// port. All sets are canonical: equal sets are equal values. It is pure, and its values are
// immutable unless a function says that it reuses its argument.
package ports

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

const highest = 65535

// Range is the ports from First to Last. Unlike an api.PortRange it can be port 0 alone, and every
// port is 0 to 65535.
type Range struct{ First, Last uint16 }

// Of returns the range of a rule.
func Of(r api.PortRange) Range {
	first, last := r.Bounds()
	return Range{first, last}
}

// PortRange returns the range as rules have it. Rules cannot say port 0 alone.
func (r Range) PortRange() api.PortRange { return api.Ports(r.First, r.Last) }

// Len returns how many ports there are in the range.
func (r Range) Len() int { return int(r.Last) - int(r.First) + 1 }

// Intersect returns the ports that are in both ranges; ok is false when there are none.
func (r Range) Intersect(o Range) (m Range, ok bool) {
	m = Range{max(r.First, o.First), min(r.Last, o.Last)}
	return m, m.First <= m.Last
}

// Set is a set of ports: ranges in order, of which no two overlap or touch.
type Set []Range

// All is the set of every port. It must not be changed.
var All = Set{{0, highest}}

// Union returns the ports of ranges in any order; it reuses the slice.
func Union(ranges []Range) Set {
	slices.SortFunc(ranges, func(a, b Range) int { return int(a.First) - int(b.First) })
	out := ranges[:0]
	for _, x := range ranges {
		if n := len(out); n > 0 && int(x.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, x.Last)
			continue
		}
		out = append(out, x)
	}
	return out
}

// Intersect returns the ports that are in both sets.
func (s Set) Intersect(o Set) Set {
	var out Set
	for i, j := 0, 0; i < len(s) && j < len(o); {
		if m, ok := s[i].Intersect(o[j]); ok {
			out = append(out, m)
		}
		if s[i].Last < o[j].Last {
			i++
		} else {
			j++
		}
	}
	return out
}

// Complement returns the ports that are not in the set.
func (s Set) Complement() Set {
	var out Set
	next := 0
	for _, x := range s {
		if next < int(x.First) {
			out = append(out, Range{uint16(next), x.First - 1})
		}
		next = int(x.Last) + 1
	}
	if next <= highest {
		out = append(out, Range{uint16(next), highest})
	}
	return out
}

// Minus returns the ports that are in s and not in o.
func (s Set) Minus(o Set) Set { return s.Intersect(o.Complement()) }

// Len returns how many ports there are in the set.
func (s Set) Len() (n int) {
	for _, r := range s {
		n += r.Len()
	}
	return n
}
