package api

import (
	"cmp"
	"strings"
)

// PortName is a port name and its protocol. In rules AnyProtocol matches every protocol; a port
// itself always has one.
type PortName struct {
	Protocol Protocol
	Name     string
}

// Covers reports whether n matches o: the names are equal, and n has the protocol of o or any.
func (n PortName) Covers(o PortName) bool {
	return n.Name == o.Name && (n.Protocol == o.Protocol || n.Protocol == AnyProtocol)
}

// NamedPort is a named port of a container.
type NamedPort struct {
	PortName
	Number uint16
}

// Compare orders by name, protocol and number.
func (n NamedPort) Compare(o NamedPort) int {
	return cmp.Or(strings.Compare(n.Name, o.Name), cmp.Compare(n.Protocol, o.Protocol), cmp.Compare(n.Number, o.Number))
}
