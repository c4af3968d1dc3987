package api

import (
	"cmp"
	"strings"
)

// PortName is the name of a port and the protocol it is for. In rules AnyProtocol
// stands for whatever protocol a port has; ports themselves have one.
type PortName struct {
	Protocol Protocol
	Name     string
}

// Covers reports whether another name is the same, with the same protocol or any.
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
