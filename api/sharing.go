package api

import (
	"net/netip"
	"slices"
)

// Sharing describes another pod that shares an address with a pod. A packet does not show which of
// the two sent or receives it, so the policies of both must permit it (SEMANTICS D16).
type Sharing struct {
	Policies []*ContivPolicy // of the other pod, sorted by ID
	// Before reports whether the other pod's name sorts first, so that both pods describe what both
	// may do in the same words.
	Before bool
	// Apart is 0.0.0.0/0 or ::/0 if the two share no address of that family although the pod has
	// one. Traffic of that family then depends on the policies of the pod alone.
	Apart netip.Prefix
	// Elsewhere reports whether the other pod is on another node, whose addresses are in Node;
	// otherwise both pods are on the same node.
	Elsewhere bool
	Node      []netip.Addr
}

// Equal reports whether two sharings are equal. It compares lists of policies by identity, because
// they are interned.
func (s Sharing) Equal(o Sharing) bool {
	return len(s.Policies) == len(o.Policies) && (len(s.Policies) == 0 || &s.Policies[0] == &o.Policies[0]) &&
		s.Before == o.Before && s.Apart == o.Apart && s.Elsewhere == o.Elsewhere && slices.Equal(s.Node, o.Node)
}
