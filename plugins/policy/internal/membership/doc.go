// Package membership computes the members of address sets.
//
// A selector of a policy is active as long as it has users. It is one address set or, with a named
// port, one per number. A link means that the pods of a group are in a set; a pod that comes or
// goes affects the sets of its group only. A new group finds its sets by an index of the active
// selectors by label, factored by their namespaces (scope).
//
// A Tally sums up what selectors of some policies take, each once. A set is published while a policy
// names it, not while it is only counted.
//
// The journal records changes between two calls of TakeUpdates as counts per set and address.
// TakeUpdates computes the net change of every set.
//
// # Invariants
//
//   - There is a link between a set and a group if and only if the set is active
//     and the group matches.
//   - The members of a set are a function of the current state of the cluster. IDs
//     are derived from canonical text.
//   - A set whose ID is already used by another set has no members.
//
// The package knows policies only by their IDs, as users of selectors. It is pure: one goroutine
// owns a Sets and an OwnNode.
package membership
