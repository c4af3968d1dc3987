// Package conformance loads recorded policy cases with expected verdicts, so
// that they can be replayed through the oracle and through every renderer, with
// the addresses of either family.
//
//	file -> Suite -> Addressing -> tests/spec/conformance/replay -> oracle, fleets
//
// The files are not part of the module: they were recorded from public suites
// and lie in ../shared/conformance, seen from the root of the module, where this
// project is developed. Tests call Need, which skips where they are absent.
//
// # Invariants
//
// A loaded suite is complete: a file with another schema, other columns, an
// unknown cluster, an unknown kind of object or a probe between names that its
// cluster does not have is an error, never a case that is left out. Objects are
// shared between steps and must not be changed.
package conformance
