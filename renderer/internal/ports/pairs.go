package ports

import "slices"

// Band is a range of source ports with the destination ports that each of them goes with.
type Band struct {
	Src Range
	Dst Set
}

// Pairs is a set of pairs of a source and a destination port. The source ranges are in order and
// do not overlap, none goes with no destination, and neighbours go with different destinations.
type Pairs []Band

// AllPairs is the set of every pair. It must not be changed.
var AllPairs = Pairs{{Range{0, highest}, All}}

// Append adds a band behind all others. It may reuse p.
func (p Pairs) Append(src Range, dst Set) Pairs {
	if len(dst) == 0 {
		return p
	}
	if n := len(p); n > 0 && int(p[n-1].Src.Last)+1 == int(src.First) && slices.Equal(p[n-1].Dst, dst) {
		p[n-1].Src.Last = src.Last
		return p
	}
	return append(p, Band{src, dst})
}

// Intersect returns the pairs that are in both sets.
func (p Pairs) Intersect(o Pairs) Pairs {
	var out Pairs
	for i, j := 0, 0; i < len(p) && j < len(o); {
		if m, ok := p[i].Src.Intersect(o[j].Src); ok {
			out = out.Append(m, p[i].Dst.Intersect(o[j].Dst))
		}
		if p[i].Src.Last < o[j].Src.Last {
			i++
		} else {
			j++
		}
	}
	return out
}

// Complement returns the pairs that are not in the set.
func (p Pairs) Complement() Pairs {
	var out Pairs
	next := 0
	for _, x := range p {
		if next < int(x.Src.First) {
			out = out.Append(Range{uint16(next), x.Src.First - 1}, All)
		}
		out = out.Append(x.Src, x.Dst.Complement())
		next = int(x.Src.Last) + 1
	}
	if next <= highest {
		out = out.Append(Range{uint16(next), highest}, All)
	}
	return out
}

// Equal reports whether two sets have the same pairs.
func (p Pairs) Equal(o Pairs) bool {
	return slices.EqualFunc(p, o, func(x, y Band) bool { return x.Src == y.Src && slices.Equal(x.Dst, y.Dst) })
}
