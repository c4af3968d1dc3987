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
// Selectors of policies that apply to at least one local pod are active: each is
// one address set, or one per number when it goes with a named port. Groups know
// the sets they are in; a pod that comes or goes touches only these. A new group
// finds its sets by an index of the active selectors by label, factored by the
// namespaces that they are for (scope). Whatever happens during an update of the
// cache is recorded as counts per set and address; Flush works out what is
// different for the sets, for the policies of the groups that are affected and for
// the pods of those groups.
//
// # Invariants
//
//   - No history: sets, lists and their order are a function of the current state
//     of the cluster. (The one exception, which SHA-256 makes improbable, is which
//     of two selectors with one SetID matches nothing.)
//   - Between a set and a group there is a link if and only if the set is active
//     and the group matches; what the sink knows of a set are the addresses of the
//     pods of the linked groups.
//   - Equal content is the same object: one ContivPolicy per policy and resolution
//     of its named ports, one list per sequence of policies.
//   - Fail closed: an unresolved name, a namespace that is not known and a set
//     without an ID of its own match nothing; a rule that does not allow and that has
//     such a set denies everything.
//
// The package is pure: it takes no locks, reads no clocks and starts nothing. One
// goroutine owns a Processor.
package processor
