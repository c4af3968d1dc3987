// Command soak plays random sequences of events on clusters of the product, compares
// everything with the specification, and counts.
//
//	go run ./tests/soak -sequences 100000 -workers 2 -kind acl [-seed 1] [-o json]
//
// What happens and what is checked is package tests/differential. Every sequence has a
// seed of its own, the first that of the flag, so a sequence that diverges is repeated
// with its seed and -sequences 1. What diverges is reduced to a minimal case.
//
// # Invariants
//
//   - The exit code is 0 only when all sequences were played and none diverged; 1 says
//     that one did, 2 that the flags were wrong, 130 that it was interrupted.
//   - The report goes to the standard output, progress to the standard error.
package main
