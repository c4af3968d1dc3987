// Package cache is the memory of the policy plugin: it turns changes of
// Kubernetes objects into a compact state, indexes it, and tells its watcher what
// became different.
//
// It sits between datasync, which delivers model.Changes, and the processor,
// which is its Watcher and asks it questions. It knows what objects say, not what
// they mean together: it resolves neither policies nor named ports.
//
// # Invariants
//
//   - Pods with equal namespace, labels and named ports are one group. Selectors
//     are evaluated per group. A group exists as long as it has a pod.
//   - Pods with hostNetwork and finished pods (Succeeded, Failed) belong to no
//     group: policies do not see them. Pods that are being deleted stay until they
//     are gone. Pods without an address belong to their group.
//   - The watcher hears of differences only. Equal objects, and changes of fields
//     that policy does not look at, cause nothing, in a resync as well.
//   - There is no order between objects: a pod may come before its namespace. A
//     namespace without its Namespace object is matched by no namespace selector,
//     not even by the empty one.
//   - A pod of which the state has no addresses has those that were registered for it at the node,
//     as long as no other pod has one of them.
//   - Nothing of the messages is kept but their strings.
//   - What cannot be understood matches nothing and is a problem (Problems).
//
// The package is pure: it takes no locks, reads no clocks and starts nothing. One
// goroutine owns a Cache.
package cache
