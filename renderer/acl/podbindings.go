package acl

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// PodBindings finds interfaces of pods that are not tagged with InterfaceTag. Every Apply with
// changes calls it again, so the facts about a pod are never applied to another pod with the same
// name. The Renderer calls its methods while it holds its lock: they must neither block nor call
// it. The implementation calls InterfacesChanged when a result changes.
type PodBindings interface {
	// InterfacesOf returns the names of the pod's interfaces in the vswitch, in any order. It is
	// empty while the pod has none. All of them get the pod's table.
	InterfacesOf(pod api.PodID) []string
	// IsPodInterface reports whether an interface is meant for some pod, including a pod that is
	// not known yet; see Pods.BlockUnknown.
	IsPodInterface(name string) bool
}

// PodInterfaces adapts a function that looks up the interfaces of a pod to PodBindings.
type PodInterfaces func(pod api.PodID) []string

// InterfacesOf implements PodBindings.
func (f PodInterfaces) InterfacesOf(pod api.PodID) []string { return f(pod) }

// IsPodInterface implements PodBindings. It knows no interfaces without a pod.
func (f PodInterfaces) IsPodInterface(string) bool { return false }

// interfaces is what the last Apply found and installed at interfaces.
type interfaces struct {
	owned        map[uint32][]api.PodID // pods by interface
	bound        map[string]vpp.Bound   // by name, for pod interfaces; replaced, never modified
	pending      []renderer.Pending     // pods and uplinks without interfaces
	ending       renderer.Unplugged     // pods whose interfaces disappeared
	natConflicts []string               // interfaces where the global table does not see pod addresses
	blocked      []string               // blocked interfaces, whose pods are unknown
	asked        uint64                 // value of reader.asks when the interfaces were read
	answered     uint64                 // the same, as of the last Apply
}

// UplinkTag is the tag of interfaces that connect the node with other nodes.
const UplinkTag = "sluice/uplink"

// ReleasedTag is the tag that allows the traffic of an interface that belonged to a pod. Without
// any tag such an interface stays blocked.
const ReleasedTag = "sluice/released"

// InterfaceTag returns the tag that identifies the interface of a pod. A name that is too long for
// a tag is truncated and made unique by a hash.
func InterfaceTag(pod api.PodID) string { return vpp.PodTag(pod.String()) }
