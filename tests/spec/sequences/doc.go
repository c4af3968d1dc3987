// Package sequences drives running clusters from state to state by reordered, split, repeated and
// resynced changes and by restarts, and checks invariants after each event.
//
//	lists -> renderertest.Expanders -> events -> fleet over every kind of dataplane -> harness.Check
//
// The lists are written in lists_test.go and tiers_test.go, taken from recorded suites, and drawn.
// An expander turns a list into events: changes in another order, split, squashed, reverted, sent
// twice, as resyncs, with restarts between.
//
// # Invariants
//
//   - After an event every invariant of tests/lab/harness holds.
//   - An intermediate state is judged as all others: the oracle gets the Kubernetes objects of that
//     moment.
//   - Lists and expanders do not depend on a dataplane.
//
// # Cost
//
// By default lists go by the expanders that do not make an event per key, and lists from elsewhere
// are few. With SLUICE_LONG=usual there are more, and every list goes by every expander, but for
// recorded ones, whose clusters are larger. Slow dataplanes get no event per key, and a fifth of
// the flows. SLUICE_LONG=1, as in "make soak", takes all recorded cases by every expander, many
// more random lists, and asks every flow after every event.
package sequences
