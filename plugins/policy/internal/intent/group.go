package intent

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// GroupID identifies a group of pods within one cache. IDs are dense and reused after a group is
// gone; nothing may be derived from them.
type GroupID uint32

// Group is what distinguishes pods for policies: pods with equal namespace, labels and named ports
// are one group, whatever policies there are. It is immutable.
type Group struct {
	Namespace  string
	Labels     Labels
	NamedPorts []api.NamedPort // sorted, without duplicates
}

// Pod is a pod to which policies can apply: it has its own addresses and is not finished.
type Pod struct {
	ID      api.PodID
	Group   GroupID
	Node    string
	IPs     []netip.Addr // sorted, without duplicates; empty while the pod has none
	NodeIPs []netip.Addr // addresses of its node, sorted, without duplicates
	// Shared reports whether another pod has one of the addresses, too. This happens when an
	// address is reused before its former owner is seen to be gone.
	Shared bool
}

// GroupQuery selects the groups that match all its conditions. If Namespace is not empty, only
// groups of this namespace match. Otherwise, if Namespaces is not nil, it selects among the
// namespaces whose Namespace object is known. Otherwise groups of every namespace match, known or
// not.
type GroupQuery struct {
	Namespace  string
	Namespaces *Selector
	Pods       *Selector
	Port       api.PortName // zero: any group; else only groups with such a port
}

// Has reports whether the group has a port of that name and protocol.
func (g *Group) Has(n api.PortName) bool {
	for i := range g.NamedPorts {
		if n.Covers(g.NamedPorts[i].PortName) {
			return true
		}
	}
	return false
}

// Node is a node of the cluster as a peer of cluster-scoped policies. It is immutable.
type Node struct {
	Name      string
	Labels    Labels
	Addresses []netip.Addr // the valid addresses of status.addresses; sorted, without duplicates
}
