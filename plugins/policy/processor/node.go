package processor

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// nodeSet keeps the well-known set of the node's addresses: those that local pods
// tell and those of the options.
type nodeSet struct {
	refs  map[netip.Addr]int
	told  []netip.Addr // what the sink knows, sorted
	dirty bool
}

// change counts d more objects that tell an address.
func (n *nodeSet) change(a netip.Addr, d int) {
	n.refs[a] += d
	if n.refs[a] <= 0 {
		delete(n.refs, a)
	}
	n.dirty = true
}

// podChanged counts the node addresses of a local pod.
func (n *nodeSet) podChanged(old, now []netip.Addr) {
	if slices.Equal(old, now) {
		return
	}
	for _, a := range now {
		n.change(a, +1)
	}
	for _, a := range old {
		n.change(a, -1)
	}
}

// takeUpdate returns what became different since the last Flush.
func (n *nodeSet) takeUpdate() update {
	u := update{id: api.NodeSet}
	if !n.dirty {
		return u
	}
	n.dirty = false
	now := slices.SortedFunc(maps.Keys(n.refs), netip.Addr.Compare)
	u.added = prefixes(without(now, n.told))
	u.removed = prefixes(without(n.told, now))
	n.told = now
	return u
}

// without returns the addresses of a that are not in b; both are sorted.
func without(a, b []netip.Addr) (out []netip.Addr) {
	for _, x := range a {
		if _, ok := slices.BinarySearchFunc(b, x, netip.Addr.Compare); !ok {
			out = append(out, x)
		}
	}
	return out
}
