package cache

import "github.com/sluice-net/sluice/plugins/policy/internal/intent"

// Watcher is notified of changes. Update calls it in the same goroutine after the cache itself has
// changed, once per changed object. It may query the cache, but must not modify it.
type Watcher interface {
	// NamespaceChanged reports the old and new labels of a namespace; nil means that the namespace
	// is not known. Labels of a known namespace are never empty.
	NamespaceChanged(name string, old, new intent.Labels)
	// GroupAdded reports a group before its first pod. The group may be kept.
	GroupAdded(id intent.GroupID, g *intent.Group)
	// GroupRemoved reports that the last pod of a group has left. The ID may be reused for another
	// group.
	GroupRemoved(id intent.GroupID)
	// PodChanged reports a pod's old and new state; nil means a pod that policies ignore. The
	// values and their IPs are valid only during the call; the NodeIPs may be kept.
	PodChanged(old, new *intent.Pod)
	// PolicyChanged reports a policy's old and new state; nil means that the policy does not exist.
	// The specs may be kept.
	PolicyChanged(old, new *intent.Policy)
	// NodeChanged reports a node's old and new state; nil means that the node is not known. The
	// values may be kept.
	NodeChanged(old, new *intent.Node)
}

// update is the context of one Update: its watcher, and the epoch for the objects.
type update struct {
	Watcher
	epoch uint32
}
