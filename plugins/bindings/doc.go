// Package bindings follows what whoever plugs pods in wrote to the store: which
// interfaces of this node's vswitch are those of which pods. It stands beside the flow
// of policy: the ACL renderer asks it when it looks for the interfaces of pods that have
// no tag. Another Watcher follows which application namespaces are those of which pods, for
// the session renderer. Keys are those of model.InterfaceKey and model.AppNamespaceKey; their
// values do not count.
//
// # Invariants
//
//   - Answers are those of the store as it was last seen, whole: a broken watch is
//     followed by a new snapshot, and until then what was known holds.
//   - A store that lost its data takes nothing away for the time of grace (as in
//     plugins/datasync), so that no interface opens because of it.
//   - A key that cannot be read is one problem, counted, and no interface.
package bindings
