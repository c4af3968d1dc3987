// Package wires builds nodes of network namespaces, with pods at veth pairs and real sockets, for
// tests of what the kernel decides about packets.
//
// # Invariants
//
//   - Namespaces have no names: they vanish with the test, and tests can run side by side.
//   - Neighbours are permanent, so that no packet waits for another one.
package wires
