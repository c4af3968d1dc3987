// Package cli implements sluicectl: it asks an agent over its debug API, runs policy unit tests,
// and prints the answers for people and for programs.
//
// # Invariants
//
// Every command prints a table, JSON or YAML of the same value. Exit codes: 0 is
// done or allowed, 1 is denied or a test that failed, 2 is an error.
package cli
