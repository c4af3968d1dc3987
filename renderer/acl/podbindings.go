package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// PodBindings knows interfaces of pods beside those that are tagged with InterfaceTag.
// Every Commit that changes anything asks it anew, so that what was true of a pod is
// never taken for true of another one with its name. Its methods are called with the
// Renderer locked: they must not block and must not call it. Whoever implements it
// calls InterfacesChanged when its answers change.
type PodBindings interface {
	// InterfacesOf returns the names that the interfaces of a pod have in the
	// vswitch, in any order; none while the pod has none. All of them get its table.
	InterfacesOf(pod api.PodID) []string
	// IsPodInterface reports whether an interface is meant for some pod, also for one
	// that is not known yet; see Pods.BlockUnknown.
	IsPodInterface(name string) bool
}

// PodInterfaces is the Plumbing of an embedder that can look up pods only.
type PodInterfaces func(pod api.PodID) []string

// InterfacesOf implements Plumbing.
func (f PodInterfaces) InterfacesOf(pod api.PodID) []string { return f(pod) }

// IsPodInterface implements Plumbing. Nothing is known of interfaces without a pod.
func (f PodInterfaces) IsPodInterface(string) bool { return false }

// interfaces is what the last commit has found of interfaces, and left at them.
type interfaces struct {
	owned        map[uint32][]api.PodID // pods by interface
	guards       map[uint32]*slot       // by interface
	bound        map[string]Bound       // what interfaces of pods have, by name; is replaced, not changed
	pending      []renderer.Pending     // who has no interface
	ending       renderer.Unplugged     // pods whose interfaces went
	natConflicts []string               // interfaces where the global table sees no addresses of pods
	blocked      []string               // interfaces whose pods are not known; blocked
	asked        uint64                 // asks, when the interfaces were read
	answered     uint64                 // the same, of the last commit
}

// noteBound remembers at which pods' interfaces rules are in force.
func (i *interfaces) noteBound(w *wanted) {
	pods := make(map[api.PodID]bool, len(w.ownership.pods))
	for _, pod := range w.ownership.pods {
		pods[pod] = true
	}
	i.ending.Plugged(pods, func(pod api.PodID) bool { _, known := w.layout.Pods[pod]; return known })
}

// noteBlocked remembers which interfaces are held, and logs those that are held from now on.
func (i *interfaces) noteBlocked(w *wanted) {
	var names []string
	for _, n := range w.m.Interfaces {
		if w.ownership.blocked[n.Index] {
			names = append(names, n.Name)
			if !slices.Contains(i.blocked, n.Name) {
				w.r.options.Log.Info("interface is closed until its pod is known", "interface", n.Name, "tag", n.Tag)
			}
		}
	}
	i.blocked = names
}

// UplinkTag is the tag of the interfaces that connect the node with other nodes.
const UplinkTag = "sluice/uplink"

// ReleasedTag is the tag of an interface that was a pod's and is to be open. Without a tag such an
// interface stays closed.
const ReleasedTag = "sluice/released"

// InterfaceTag returns the tag by which the interface of a pod is found. A name
// that is too long for a tag is cut and made unique by a hash.
func InterfaceTag(pod api.PodID) string { return vpp.PodTag(pod.String()) }
