// Package differential proves that the product and the specification agree: the
// whole pipeline, from Kubernetes objects to packets in the dataplane, against
// internal/oracle, which shares no code with it.
//
// It stands beside the flow of rooms and drives it from both ends:
//
//	tests/cluster -> ksr.Convert -> node.Fabric -> packets ---+
//	      |                                                   +-> equal?
//	      +--------------> oracle.New ----------> verdicts ---+
//
// TestRandomClusters asks about single states, TestRandomSequences about states
// that came one after the other, TestPublicSuites about recorded ones. A failure
// that was shrunk to its core becomes a test with a name in named_test.go.
//
// # Invariants
//
//   - Verdicts are those of packets in a dataplane. In sequences packets leave
//     sessions behind, come again after changes, and are answered.
//   - What a running node has installed is compared with what a new node has that
//     is told the same state at once; both see it in another order.
//   - Every comparison is itself tested to fail (harness_test.go).
//
// # Sizes
//
// By default some hundred clusters and sequences are drawn, 100 for each shape.
// -rapid.checks=N draws N for each shape, -short a fifth. Where the flows of a
// state are more than a bound, that many of them are drawn. SLUICE_LONG=1 asks all
// of them, makes sequences five times as long and draws more large ones. What failed is repeated with
// -rapid.seed, or from the file that rapid names. The public suites are replayed as
// a whole, with -short a tenth of their probes.
package differential
