// Package attacks tests that the kernel dataplane drops or passes each packet that a hostile pod
// may send, as docs/guide/verdicts.md says.
//
// # Invariants
//
//   - A kind of packet is defined once, in kinds_test.go, with the expected verdict in three
//     situations: without policy, where nothing is permitted, and where little is.
//   - Every kind is tested in the program itself (BPF_PROG_TEST_RUN), and is sent through a raw
//     socket in every mode, by pods on veth pairs and on a bridge, in both families: what must be
//     dropped never arrives, and what is permitted does.
package attacks
