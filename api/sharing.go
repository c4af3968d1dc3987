package api

import (
	"net/netip"
	"slices"
)

// Sharing is another pod that has an address of a pod. A packet cannot show which of
// the two it is from or for, so the policies of both must permit it (SEMANTICS D16).
type Sharing struct {
	Policies []*ContivPolicy // that apply to the other pod, sorted by ID
	// Before reports whether the other pod's name comes first, so that what both may do
	// can be said of both in the same words.
	Before bool
	// Apart is 0.0.0.0/0 or ::/0 when the two share no address of that family, though
	// the pod has one: what is from or to that is up to the pod alone.
	Apart netip.Prefix
	// Elsewhere reports whether the other pod is on another node, which has the addresses
	// in Node; otherwise the own node of the one is that of the other.
	Elsewhere bool
	Node      []netip.Addr
}

// Equal reports whether two sharings are the same. Lists of policies are compared by
// identity, as they are shared.
func (s Sharing) Equal(o Sharing) bool {
	return len(s.Policies) == len(o.Policies) && (len(s.Policies) == 0 || &s.Policies[0] == &o.Policies[0]) &&
		s.Before == o.Before && s.Apart == o.Apart && s.Elsewhere == o.Elsewhere && slices.Equal(s.Node, o.Node)
}
