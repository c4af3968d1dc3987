// Package cache holds the state of the policy plugin: it turns changes of Kubernetes objects into a
// compact state, indexes it, and notifies its watcher of what changed.
//
// It sits between datasync, which delivers model.Changes, and the processor, which is its Watcher
// and queries it. It knows the contents of objects, not their combined meaning: it resolves neither
// policies nor named ports.
//
// # Invariants
//
//   - Pods with equal namespace, labels and named ports form one group. Selectors
//     are evaluated per group. A group exists as long as it has a pod.
//   - Pods with hostNetwork and finished pods (Succeeded, Failed) belong to no
//     group: policies ignore them. Pods that are being deleted stay until they
//     are gone. Pods without an address belong to their group.
//   - The watcher is notified of differences only. Equal objects, and changes of
//     fields that policy ignores, cause no notification, not even in a resync.
//   - Objects come in any order: a pod may precede its namespace. A
//     namespace without its Namespace object is matched by no namespace selector,
//     not even by the empty one.
//   - A pod without addresses in the state has those that were registered for it at the node,
//     as long as no other pod has one of them.
//   - Of the messages only strings are retained.
//   - Invalid input matches nothing and is reported as a problem (Problems).
//
// The package is pure: it takes no locks, reads no clocks and starts no goroutines. One goroutine
// owns a Cache.
package cache
