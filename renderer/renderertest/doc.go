// Package renderertest has what tests of renderers, and of the layers above
// them, share: a Recorder, which is a renderer that keeps its rules in memory and
// answers for flows, and Run, the suite that every renderer must pass.
//
// # Place in the flow
//
// A Recorder stands where a network stack would stand. Run puts a renderer beside
// a Recorder, tells both the same transactions and compares what the stack under
// the renderer does with the first packet of flows with what the plain evaluation
// of the lists says.
//
// # Invariants
//
//   - A Recorder evaluates lists rule by rule and shares no code with renderers,
//     so that it can be the truth for them.
//   - Its text dump is a function of what was told last, not of the way there.
//   - Whatever the contract of package renderer forbids its caller is reported as
//     a violation.
//
// Only tests and benchmarks import this package.
package renderertest
