// Package wires has nodes with pods in network namespaces, connected by veth pairs, with real
// sockets, for tests of what decides about packets in the kernel.
//
// # Invariants
//
//   - Namespaces have no names: they vanish with the test, and tests can run side by side.
//   - Neighbours are permanent, so that no packet waits for another one.
package wires
