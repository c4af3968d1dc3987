// Package scenarios runs text files that define, for small clusters, what policies mean: they are
// readable, and every renderer is tested by them. docs/guide/scenarios.md documents the commands.
//
//	file -> datadriven -> commands -> world -> fleet of nodes over stacks of one kind
//	                                    |                 |
//	                                    +----> oracle ----+-> equal?
//
// # Invariants
//
//   - What a file expects was written from the specification, and its first comment
//     names the source. -update repairs text, it does not find out what is right.
//   - After every change of the cluster, whatever the file asks, every invariant of
//     tests/lab/harness holds.
//   - Nothing passes silently: commands, words, names and labels that are not
//     understood end the file with its line.
//   - Files run on every kind of dataplane. A command that asks one kind only names it.
package scenarios
