// Package bench measures the whole flow from decoded model objects to what a
// renderer has committed, on inputs of the size of clusters: the shape on which
// the incumbent was measured, generated workloads, one policy with very many
// blocks, the way from the store to the dataplane, and the rate of policy tests.
// docs/reference/performance.md says how to run it and what came out.
//
// It stands beside the flow of rooms and drives it from outside. The benchmarks are
// test files; the package itself only turns their output into a table (Table).
//
// # Invariants
//
//   - A time counts only after the state that was reached is checked: the verdicts
//     of a sample of flows, aimed at the rules and beside them, are those of
//     internal/oracle for the same Kubernetes objects, outside of the timed part.
//   - No benchmark asserts a time: a machine may be slow, a result may not be wrong.
//   - Beside the time that passed stands the CPU time of the whole process, garbage
//     collection included: on a shared machine it is the more honest of the two.
//   - Inputs are functions of constants, the same in every run.
package bench
