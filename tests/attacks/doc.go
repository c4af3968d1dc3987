// Package attacks has the packets that a hostile pod may send, each with what must become of it in
// the kernel, by docs/guide/verdicts.md.
//
// # Invariants
//
//   - A kind of packet stands once, in kinds_test.go, with its fate in three situations: without
//     policy, where nothing is permitted, and where little is.
//   - Every kind is asked of the program itself (BPF_PROG_TEST_RUN), and sent by a raw socket in
//     every mode, by pods on pairs and on a bridge, in both families: what must be dropped never
//     arrives, and what is permitted does.
package attacks
