// Package compile turns the rule lists of pods and the members of address sets into flat
// memory in which the verdict about a packet is found with a constant number of loads.
//
// # Place in the flow
//
// It is the part of the XDP renderer that knows no kernel: it writes lines of 64 bytes
// into a shadow in the heap and says in which order what must become visible. Package xdp
// carries that into a map; the program in the kernel reads it as Reader does.
//
// # The memory
//
// A cell is a word that stands for a total function of a 16-bit key: a leaf, a sorted list
// of up to 8 or up to 32 runs, or a node with 256 cells for the high byte, whose cells may
// be nodes for the low byte. Addresses lead through cells to a class, which is the set of
// the nets (prefixes and address sets) that hold the address. A list has, for every class,
// a row: one cell each for the ports of TCP, UDP and SCTP and for the numbers of all other
// protocols, whose values are verdicts. What order, tiers and ranges mean is resolved when
// a row is made. layout.go has the details.
//
// # Invariants
//
//   - What is reachable is never changed, but for words whose change is a step of its own:
//     entries of classes that no address has yet, and roots of addresses.
//   - What is not reachable any more is used again only after the caller said that no
//     packet can be on its way through it.
//   - Verdicts are those of the first rule that matches, for every list and address.
//
// A type of this package is used by one goroutine at a time.
package compile
