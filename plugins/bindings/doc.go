// Package bindings follows in etcd which interfaces of this node's vswitch belong to which pods;
// the component that connects pods writes these keys. It is not part of the flow of policy: the ACL
// renderer uses it to find the interfaces of pods that have no tag. A second Watcher follows the
// application namespaces of pods, for the session renderer. The keys are those of
// model.InterfaceKey and model.AppNamespaceKey; their values are ignored.
//
// # Invariants
//
//   - Answers reflect the store as it was last seen, completely: a broken watch is
//     followed by a new snapshot, and until then the known bindings stay valid.
//   - If the store lost its data, bindings stay during the grace period (as in
//     plugins/datasync), so that no interface opens because of it.
//   - An invalid key is one problem, counted, and no binding.
package bindings
