package cache

import "slices"

// span is an inclusive range of ports, with room for arithmetic.
type span struct{ first, last int32 }

// maxPort is the highest port.
const maxPort = 65535

// allPorts is the span set of every port.
var allPorts = spans{{0, maxPort}}

// spans is a set of ports: sorted, disjoint and not adjacent, hence canonical.
type spans []span

// normal brings any spans into canonical form; it may reuse the slice.
func normal(s spans) spans {
	slices.SortFunc(s, func(a, b span) int { return int(a.first - b.first) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, x.last)
			continue
		}
		out = append(out, x)
	}
	return out
}

// intersect returns the ports that are in both sets.
func (s spans) intersect(o spans) spans {
	var out spans
	for i, j := 0, 0; i < len(s) && j < len(o); {
		if first, last := max(s[i].first, o[j].first), min(s[i].last, o[j].last); first <= last {
			out = append(out, span{first, last})
		}
		if s[i].last < o[j].last {
			i++
		} else {
			j++
		}
	}
	return out
}

// complement returns the ports that are not in the set.
func (s spans) complement() spans {
	var out spans
	next := int32(0)
	for _, x := range s {
		if next < x.first {
			out = append(out, span{next, x.first - 1})
		}
		next = x.last + 1
	}
	if next <= maxPort {
		out = append(out, span{next, maxPort})
	}
	return out
}

// minus returns the ports that are in s and not in o.
func (s spans) minus(o spans) spans { return s.intersect(o.complement()) }

// band is a range of source ports with the destination ports that they go with.
type band struct {
	src span
	dst spans
}

// bands is a set of pairs of a source and a destination port. The source spans
// are sorted and disjoint, none goes with no destination, and adjacent ones go
// with different destinations, hence it is canonical.
type bands []band

// everyPort is the set of all pairs of ports.
var everyPort = bands{{span{0, maxPort}, allPorts}}

// add appends a band behind all others, keeping the set canonical.
func (b bands) add(src span, dst spans) bands {
	if len(dst) == 0 {
		return b
	}
	if n := len(b); n > 0 && b[n-1].src.last+1 == src.first && slices.Equal(b[n-1].dst, dst) {
		b[n-1].src.last = src.last
		return b
	}
	return append(b, band{src, dst})
}

// intersect returns the pairs that are in both sets.
func (b bands) intersect(o bands) bands {
	var out bands
	for i, j := 0, 0; i < len(b) && j < len(o); {
		if first, last := max(b[i].src.first, o[j].src.first), min(b[i].src.last, o[j].src.last); first <= last {
			out = out.add(span{first, last}, b[i].dst.intersect(o[j].dst))
		}
		if b[i].src.last < o[j].src.last {
			i++
		} else {
			j++
		}
	}
	return out
}

// complement returns the pairs that are not in the set.
func (b bands) complement() bands {
	var out bands
	next := int32(0)
	for _, x := range b {
		if next < x.src.first {
			out = out.add(span{next, x.src.first - 1}, allPorts)
		}
		out = out.add(x.src, x.dst.complement())
		next = x.src.last + 1
	}
	if next <= maxPort {
		out = out.add(span{next, maxPort}, allPorts)
	}
	return out
}

func (b bands) equal(o bands) bool {
	return slices.EqualFunc(b, o, func(x, y band) bool { return x.src == y.src && slices.Equal(x.dst, y.dst) })
}
