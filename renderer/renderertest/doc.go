// Package renderertest contains test tools for renderers and the layers above them. A Recorder is a
// renderer that keeps its rules in memory and returns verdicts for flows. Run is the conformance
// suite that every renderer must pass.
//
// # Place in the flow
//
// A Recorder takes the place of a dataplane. Run applies the same transactions to a renderer and to
// a Recorder. It compares what the dataplane does with the first packets of flows with the plain
// evaluation of the lists.
//
// # Invariants
//
//   - A Recorder evaluates lists rule by rule and shares no code with renderers,
//     so that it can be the truth for them.
//   - Its text dump depends only on the current state, not on history.
//   - Whatever the contract of package renderer forbids its caller is reported as
//     a violation.
//
// Only tests and benchmarks import this package.
package renderertest
