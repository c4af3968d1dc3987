package api

import (
	"cmp"
	"net/netip"
	"strings"
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
	NamedPorts []NamedPort // sorted, each once
}

// PortName is the name of a port and the protocol it is for. In rules AnyProtocol
// stands for whatever protocol a port has; ports themselves have one.
type PortName struct {
	Protocol Protocol
	Name     string
}

// Covers says whether another name is the same, with the same protocol or any.
func (n PortName) Covers(o PortName) bool {
	return n.Name == o.Name && (n.Protocol == o.Protocol || n.Protocol == AnyProtocol)
}

// NamedPort is a port of a container that has a name.
type NamedPort struct {
	PortName
	Number uint16
}

// Compare orders by name, protocol and number.
func (n NamedPort) Compare(o NamedPort) int {
	return cmp.Or(strings.Compare(n.Name, o.Name), cmp.Compare(n.Protocol, o.Protocol), cmp.Compare(n.Number, o.Number))
}

// Pod is a pod that policies see: it has its own addresses and is not finished.
type Pod struct {
	ID      PodID
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
	Port       PortName // zero: any group; else groups that have such a port
}

// Has says whether the group has a port of that name and protocol.
func (g *Group) Has(n PortName) bool {
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
