// Package membership knows who is in which address set.
//
// A selector of a policy is active as long as somebody uses it. It is one address
// set, or one per number when it goes with a named port. A link says that the pods
// of a group are in a set; a pod that comes or goes touches the sets of its group
// only. A new group finds its sets by an index of the active selectors by label,
// factored by the namespaces that they are for (scope).
//
// Whatever changes between two calls of TakeUpdates is recorded as counts per set
// and address (journal). TakeUpdates works out the net change of every set.
//
// # Invariants
//
//   - Between a set and a group there is a link if and only if the set is active
//     and the group matches.
//   - The members of a set are a function of the current state of the cluster. IDs
//     are derived from canonical text.
//   - A set without an ID of its own, because another one has it, has no members.
//
// The package knows no policy but by its ID, as a user of a selector. It is pure:
// one goroutine owns a Sets and an OwnNode.
package membership
