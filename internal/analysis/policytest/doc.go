// Package policytest runs the policy tests that users write: files with
// Kubernetes objects, steps that change them, and flows with the verdict that is
// expected. docs/guide/policy-tests.md documents the format.
//
// It is not part of the pipeline, but drives it from outside:
//
//	file -> Parse -> File -> Runner -> Subject (oracle, or a node with its dataplane) -> Report
//
// A Subject answers questions about flows. All subjects get the same changes and the same
// questions. So a report shows both whether the policies do what their author expects and whether
// the subjects agree with each other.
//
// # Invariants
//
//   - Nothing passes silently. An unknown field, an endpoint expression that
//     resolves to nothing, an entry that asks nothing and a manifest that cannot be
//     read are errors, not probes that were not asked.
//   - Subjects get differences only: an object that a step leaves as it was is not
//     applied again, and a subject is never rebuilt between steps or files.
//   - What is asked is a function of the file and the objects, in a fixed order.
//   - No input makes the package panic.
package policytest
