// Package replay replays recorded suites through the oracle and every renderer, and counts the
// verdicts that differ from the recorded ones.
//
//	conformance.Suite -> Addressing -> Run -> Subject: the oracle, or a fleet over one dataplane
//	                                    |
//	                                    +-> Result -> tests, report
//
// # Invariants
//
//   - A subject lives as long as a suite: what a step changes comes as changes, also
//     from one case to the next.
//   - Nothing is excused. There is no list of known mismatches, what is not asked is
//     counted with its reason, and so is what a dataplane cannot see or express.
//   - A row in which a pod talks to itself expects a permit, whatever the suite says:
//     Kubernetes leaves no choice there (row 37).
//   - What a suite does not state is expected from the oracle, and then not asked of
//     the oracle.
//   - A result is a function of suite, subject and options: no times, no order of maps.
package replay
