// Package neverfewer proves one law for the engine and every renderer together, step by step:
//
//	For each side of a pod (what it may send, what it may receive), what its old and its new list
//	both permit passes, and what neither permits does not.
//
// A list is meant with the members of all sets that it names, both of one moment. Old is what the
// renderer held for that side when an Apply last succeeded, new is what it has received since; a
// state that it never received does not count.
//
//	Case -> policy.Handler -> law -> renderer -> its smallest real dataplane
//	           |               |                   |  after every call that changes it, and
//	           |               +--- looks at ------+  after every Apply, also a failed one
//	           +-> oracle: what the renderer received is of a state of the cluster
//
// A Case is edits of a cluster, the calls to the dataplane that fail meanwhile, and restarts. It is
// data, and is made smaller when it breaks the law.
//
// # Invariants
//
//   - What a renderer received is evaluated by a Recorder, rule by rule, and compared with
//     internal/analysis/oracle, which shares no code with the product.
//   - What passes is asked of the dataplane, never of a renderer. Where a dataplane has tables for both
//     directions, a flow passes if both ends let it.
//   - All that bounds the work of one transaction is set to its smallest amount in some of the cases,
//     so that small lists are written in many steps, and lists of thousands of rules are in others.
//
// # Sizes
//
// "make test" plays few cases. SLUICE_LONG=1, as in "make soak", plays 200 times as many, and makes
// every call of the written cases fail. "-args -seeds N -first-seed S" plays N seeds from S on; a
// failure prints the command that repeats it.
package neverfewer
