// Package endpoints tracks which interfaces of a node belong to which pods.
//
// # Place in the flow
//
//	CNI plugin, embedder, network namespaces -> Registry -> renderer/xdp, and the gate of interfaces
//
// # Invariants
//
//   - Nothing that a pod can influence determines the owner of an interface: no neighbours,
//     forwarding databases, routes, source addresses.
//   - A look-up that fails changes nothing. A claim ends when its source withdraws it, or with the
//     interface.
//   - In every state but StateEnforced the interface is blocked.
//   - If both sides know the UID of a pod, it must match: an interface that was claimed for an
//     earlier pod of the same name is blocked.
//   - Claims for two pods on one interface block it, and are reported.
//   - A new interface that reuses an index is a different interface; a renamed one stays the same.
package endpoints

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
)

// State is the state of an interface: whether its packets pass, and why not.
type State string

// The states. In all but StateEnforced an interface is blocked.
const (
	StateUnknown State = "unknown" // not claimed for any pod
	// belongs to a pod whose policy is not known or not enforced yet
	StatePending  State = "pending"
	StateEnforced State = "enforced" // belongs to a pod whose policy is in force
	// belongs to a pod that is gone, or that has another sandbox now
	StateOrphaned    State = "orphaned"
	StateConflicting State = "conflicting" // claimed for several pods
)

// Source is the origin of a claim. If there are several, the greatest is shown; all must name the
// same pod.
type Source int

// The sources, in ascending order of preference.
const (
	SourceNone       Source = iota // no claim
	SourceNamespace                // the network namespace that a container runtime recorded for the pod
	SourceKey                      // a tag of the interface, or a key in the store
	SourceRegistered               // a CNI plugin, or the embedding program
)

var sourceNames = []string{"", "namespace", "key", "registered"}

// String returns the name of a source, or "" for SourceNone.
func (s Source) String() string {
	if s < 0 || int(s) >= len(sourceNames) {
		return fmt.Sprintf("source %d", int(s))
	}
	return sourceNames[s]
}

// Link is an interface of the node: the node's end of a pod's connection. Two Links with equal
// Index and MAC are the same interface, unless the first was removed in between.
type Link struct {
	Index uint32 `json:"index"` // in the node's network namespace, never 0
	Name  string `json:"name"`  // for display: it may change
	MAC   string `json:"mac"`   // of the node's end, which a pod cannot change
}

// is reports whether both Links describe the same interface.
func (l Link) is(o Link) bool { return l.Index == o.Index && l.MAC == o.MAC }

// Claim states that an interface belongs to a pod.
type Claim struct {
	Source Source `json:"source"`
	// Owner identifies the claim among those of its source: a later one with the same owner
	// replaces it. For CNI it is a container and the name of an interface in it.
	Owner string    `json:"owner"`
	Pod   api.PodID `json:"pod"`
	UID   string    `json:"uid,omitempty"` // of the pod; empty: not known
	// Sandbox identifies the sandbox of the pod; for CNI it is the container id. A pod has one
	// sandbox at a time, and interfaces of other sandboxes are blocked. Empty: the source knows no
	// sandboxes.
	Sandbox string `json:"sandbox,omitempty"`
	Network string `json:"network,omitempty"` // of CNI; empty: it is not one of a CNI plugin
	Link    Link   `json:"link"`
	// IPs are the addresses that the pod received. Policy uses them until the state has addresses
	// of the pod, and then is enforced only if the two have an address in common. Empty: not known.
	IPs   []netip.Addr `json:"ips,omitempty"`
	Since time.Time    `json:"since"`
}

// key identifies a claim.
type key struct {
	source Source
	owner  string
}

func (c Claim) key() key { return key{c.Source, c.Owner} }

// samePod reports whether two claims are for the same pod with the same UID.
func (c Claim) samePod(o Claim) bool {
	return c.Pod == o.Pod && c.UID == o.UID && c.Sandbox == o.Sandbox
}

// compareClaims orders claims by source, then by time, with the best last.
func compareClaims(a, b Claim) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner))
}

// Endpoint is an interface of the node with its state.
type Endpoint struct {
	Link   Link
	Pod    api.PodID // the zero value in StateUnknown
	UID    string
	State  State
	Source Source    // SourceNone in StateUnknown
	Since  time.Time // when the state began
	Reason string    // why it is blocked; empty in StateEnforced
}
