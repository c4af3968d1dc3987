package prefixes

import (
	"net/netip"
	"slices"
)

// Put adds the addresses of a prefix to a list of the fewest prefixes, in order, or removes them,
// and returns such a list. The list contains none of the addresses that are added, and all that are
// removed. Put changes the list in place.
func Put(list []netip.Prefix, p netip.Prefix, in bool) []netip.Prefix {
	i, _ := slices.BinarySearchFunc(list, p, Compare)
	if !in {
		if i == len(list) || list[i] != p {
			i-- // the one that contains p starts no later
		}
		return slices.Replace(list, i, i+1, without(list[i], p)...)
	}
	end := i
	for {
		if i > 0 {
			if parent, ok := Parent(list[i-1], p); ok {
				p, i = parent, i-1
				continue
			}
		}
		if end == len(list) {
			break
		}
		parent, ok := Parent(p, list[end])
		if !ok {
			break
		}
		p, end = parent, end+1
	}
	return slices.Replace(list, i, end, p)
}

// without returns the fewest prefixes, in order, that contain what p contains, except for what o
// contains, which lies inside of it.
func without(p, o netip.Prefix) []netip.Prefix {
	var below, above []netip.Prefix
	for p != o {
		low, high := Halves(p)
		if low.Contains(o.Addr()) {
			p, above = low, append(above, high)
		} else {
			p, below = high, append(below, low)
		}
	}
	slices.Reverse(above)
	return append(below, above...)
}
