// Package legacy compares what manifests of Kubernetes before 1.7 meant with what
// plugins/ksr makes of them: the pseudo-code of the proposal of NetworkPolicy, written
// out naively, against the verdicts of internal/analysis/oracle on the converted objects.
//
// # Invariants
//
// The naive side has types of its own, after the Go definitions of the proposal, and
// shares nothing with the product but the text of the manifests.
package legacy
