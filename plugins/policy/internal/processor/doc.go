// Package processor resolves policies: it decides which policies apply to which
// local pods, turns selectors into address sets and named ports into numbers, and
// says what became different.
//
// It sits between the cache, which tells it of changes (it is a cache.Watcher)
// and which it asks (State), and the configurator, whose transaction is its Sink.
// Directions are the pod's.
//
// # How it works
//
// Who is in which address set is the job of package membership. Above it, localPods
// holds the pods of the node by group, sharing those that have an address together, and
// resolver the policies of each group as they apply to it: a ContivPolicy names sets and
// numbers only. problemTracker knows what of policies cannot be enforced. Each part has
// its own state and knows the lower ones only. What the cache tells is recorded; Flush
// works out what is different for the sets, for the policies of the groups that are
// affected and for the pods of those groups.
//
// # Invariants
//
//   - No history: sets, lists and their order are a function of the current state
//     of the cluster. (The one exception, which SHA-256 makes improbable, is which
//     of two selectors with one SetID matches nothing.)
//   - What the sink knows of a set are the addresses of the pods of the groups that
//     the set is linked to.
//   - Equal content is the same object: one ContivPolicy per policy and resolution
//     of its named ports, one list per sequence of policies.
//   - Fail closed: an unresolved name, a namespace that is not known and a set
//     without an ID of its own match nothing; a rule that does not allow and that has
//     such a set denies everything.
//
// The package is pure: it takes no locks, reads no clocks and starts nothing. One
// goroutine owns a Processor.
package processor
