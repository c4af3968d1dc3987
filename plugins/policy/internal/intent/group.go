package intent

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// GroupID names a group of pods within one cache. It is dense, and used again
// when the group is gone: it identifies, but nothing may be derived from it.
type GroupID uint32

// Group is what policies can tell pods apart by: pods with equal namespace,
// labels and named ports are one group, whatever policies there are. It is
// immutable.
type Group struct {
	Namespace  string
	Labels     Labels
	NamedPorts []api.NamedPort // sorted, each once
}

// Pod is a pod that policies see: it has its own addresses and is not finished.
type Pod struct {
	ID      api.PodID
	Group   GroupID
	Node    string
	IPs     []netip.Addr // sorted, each once; empty while the pod has none
	NodeIPs []netip.Addr // addresses of its node, sorted, each once
	// Shared says that another pod has one of the addresses too. This happens
	// when an address is used again before its former owner is seen to be gone.
	Shared bool
}

// GroupQuery asks for the groups that match all its conditions. Namespace, when
// it is not empty, is the only namespace; else Namespaces, when it is not nil,
// selects among the namespaces whose Namespace object is known; else groups of
// every namespace match, known or not.
type GroupQuery struct {
	Namespace  string
	Namespaces *Selector
	Pods       *Selector
	Port       api.PortName // zero: any group; else groups that have such a port
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

// Node is a node of the cluster, as peers of cluster-scoped policies see it. It is
// immutable.
type Node struct {
	Name      string
	Labels    Labels
	Addresses []netip.Addr // all of status.addresses that are addresses; sorted, each once
}
