// Package compile turns the rule lists of pods and the members of address sets into the policy map.
// In this flat memory a program finds the verdict about a packet with a constant number of loads.
//
// # Place in the flow
//
// It is the part of the XDP renderer that is independent of the kernel. It writes lines of 64
// bytes into a shadow in the heap, and returns in which order the changes must become visible.
// Package xdp carries them into a map. The program in the kernel reads the map as Reader does.
//
// # The policy map
//
// A cell is a word that encodes a total function of a 16-bit key. It is a leaf, a sorted list of up
// to 8 or up to 32 runs, or a node with 256 cells for the high byte. Those cells may be nodes for
// the low byte. Addresses lead through cells to a class, which is the set of the nets (prefixes and
// address sets) that hold the address. A list has a row for every class. The row has one cell each
// for the ports of TCP, UDP and SCTP and for the numbers of all other protocols, whose values are
// verdicts. The order of rules, tiers and ranges is resolved when a row is made: see layout.go.
//
// # Invariants
//
//   - Reachable memory is never changed, except for words whose change is a step of its own:
//     entries of classes that no address has yet, and roots of addresses.
//   - Memory that became unreachable is reused only after the caller reported that no packet in
//     flight can read it.
//   - Verdicts are those of the first rule that matches, for every list and address.
//   - A plan writes a list in one piece, with the members of its sets, or not at all: which lists
//     have room is decided before, from the state alone. See Limits.
//
// One goroutine at a time may use a value of a type of this package.
package compile
