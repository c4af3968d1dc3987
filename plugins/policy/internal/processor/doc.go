// Package processor resolves policies: it determines which policies apply to which local pods,
// resolves selectors to address sets and named ports to numbers, and reports changes.
//
// It sits between the cache, which notifies it of changes (it is a cache.Watcher) and which it
// queries (State), and the configurator, whose transaction is its Sink. Directions are seen from
// the pod.
//
// # How it works
//
// Package membership computes the members of address sets. Above it, localPods holds the pods of
// the node by group, and sharing those that share an address. resolver holds the policies of each
// group as they apply to it: a ContivPolicy refers to sets and numbers only. admission decides which
// policies are evaluated, which bounds the work for each namespace. problemTracker knows which parts
// of policies cannot be enforced. Each part has its own state and knows only the lower ones.
//
// Events mark, Flush settles. A notification of the cache computes nothing: it marks the groups and
// pods that it is about (localPods.dirty, dirtyPods), the policies (policyState.stale), the sets
// (membership: Set.touched) and the namespaces whose quota counts anew (tenant.touched). Flush then
// settles what is marked, from below: which policies are admitted, the list of each marked group, the
// pods of groups whose list changed, and the net change of every set.
//
// # Invariants
//
//   - No history: sets, lists and their order are a function of the current state
//     of the cluster. (The one exception, which SHA-256 makes improbable, is which
//     of two selectors with one SetID matches nothing.)
//   - The sink knows as members of a set that a policy names the addresses of the pods
//     of the groups that are linked to the set, and has no other sets.
//   - Equal content is the same object: one ContivPolicy per policy and resolution
//     of its named ports, one list per sequence of policies.
//   - Fail closed: an unresolved name, an unknown namespace and a refused
//     set match nothing; a rule that does not allow and uses such a set denies everything.
//     A refused policy isolates its pods and permits nothing.
//
// The package is pure: it takes no locks, reads no clocks and starts no goroutines. One goroutine
// owns a Processor.
package processor
