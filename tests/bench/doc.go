// Package bench measures the pipeline on cluster-sized inputs, from decoded objects to a renderer's
// commit: generated workloads, one policy with very many blocks, the way from the store to the
// dataplane, and the rate of policy tests.
//
// The package drives the components from outside. "make bench-report" prints medians of its runs.
//
// # Invariants
//
//   - A time counts only after a check of the state that was reached: for a sample of flows, aimed
//     at the rules and just outside of them, the verdicts equal those of internal/analysis/oracle for the
//     same Kubernetes objects. The check is outside of the timed part.
//   - No benchmark asserts a time: a machine may be slow, but a result may not be wrong.
//   - Each elapsed time is reported with the CPU time of the whole process, garbage collection
//     included: on a shared machine the CPU time is the more reliable of the two.
//   - Inputs are functions of constants, the same in every run.
package bench
