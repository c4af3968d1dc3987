// Package differential applies random events to running clusters and checks, after each, that the
// product and the specification agree: the whole pipeline, from Kubernetes objects to packets in a
// dataplane, against internal/analysis/oracle, which shares no code with it.
//
//	Source -> Event -> Machine -> fleet of nodes over stacks of one kind -+
//	            |                                                         +-> equal?
//	            +---> state ----> internal/analysis/oracle ------------------------+
//
// An Event is data: edits of a cluster, how agents receive them, which of them restart, and which
// calls to a dataplane fail. A Case is a list of events that can be played again, and Minimise
// makes it small. Machines are driven by rapid (TestMachine) and by seeds (TestPlaySeeds), which
// plays as many as one likes.
//
// Single states are asked more closely than sequences (TestPlayRandomClusters,
// TestPlayExplanations). What was once wrong has a name in named_test.go.
//
// # Invariants
//
//   - Every property is one of harness.Invariants, and a failure is a *harness.Violation.
//   - Nothing here knows a renderer: all of tests/lab/harness/backends are tested.
//   - What is right is computed by the oracle, never by the product. A new fleet is
//     compared with, and its verdicts are asked as well.
//   - Every check is itself tested to fail (harness_test.go, faults_test.go).
//
// # Sizes
//
// By default rapid draws 12 of each kind of cluster, and 40 seeds are played on each kind of
// dataplane; SLUICE_LONG=usual draws 40 and plays 200 seeds. Of a slow backend it is 20 seeds, and
// nothing of rapid. With -short it is a quarter of the seeds, and a fifth of what rapid draws.
// -rapid.checks=N draws N. SLUICE_LONG=1, as in "make soak", draws 100, makes sequences five
// times as long and plays 20 000 seeds. What rapid found is repeated with -rapid.seed, or from
// the file that it names; what a seed found, with the command that the message ends with.
// "-args -seeds N -first-seed S" plays N seeds from S on.
package differential
