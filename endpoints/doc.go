// Package endpoints owns one truth of a node: interface I belongs to pod P from time T on.
//
// # Place in the flow
//
//	CNI plugin, embedder, network namespaces -> Registry -> renderer/xdp, and the gate of interfaces
//
// # Invariants
//
//   - Nothing that a pod can write is evidence: no neighbours, forwarding databases, routes,
//     source addresses.
//   - A look-up that fails changes nothing. A claim ends when its source withdraws it, or with the
//     interface.
//   - Every state but StateEnforced means that the interface lets nothing pass.
//   - The UID of a pod decides, where both sides know it: what was claimed for another life of the
//     pod is blocked.
//   - Claims of two pods on one interface block it, and are reported.
//   - An interface is itself: another one with its index is another one, and one with a new name
//     is the same.
package endpoints

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
)

// State says what becomes of the packets of an interface, and why.
type State string

// The states. In all but StateEnforced an interface lets nothing pass.
const (
	StateUnknown     State = "unknown"     // nobody says whose it is
	StatePending     State = "pending"     // a pod's, whose policy is not known or not enforced yet
	StateEnforced    State = "enforced"    // a pod's, and its policy is in force
	StateOrphaned    State = "orphaned"    // a pod's that is gone, or that has another sandbox now
	StateConflicting State = "conflicting" // claimed for several pods
)

// Source is who claims an interface for a pod. Of several the greatest is shown; all must name the
// same pod.
type Source int

// The sources, from the least to the best.
const (
	SourceNone      Source = iota // nobody
	SourceNamespace               // the network namespace that a container runtime recorded for the pod
	SourceKey                     // a tag of the interface, or a key in the store
	SourceTold                    // a CNI plugin, or the program that embeds Sluice
)

var sourceNames = []string{"", "namespace", "key", "told"}

// String returns the name of a source, empty for nobody.
func (s Source) String() string {
	if s < 0 || int(s) >= len(sourceNames) {
		return fmt.Sprintf("source %d", int(s))
	}
	return sourceNames[s]
}

// Link is an interface of the node: the node's end of what connects a pod. Two with equal Index and
// MAC are the same one, unless the first was gone in between.
type Link struct {
	Index uint32 `json:"index"` // in the node's network namespace, never 0
	Name  string `json:"name"`  // for people: it may change
	MAC   string `json:"mac"`   // of the node's end, which a pod cannot write
}

// is reports whether two descriptions are of one interface.
func (l Link) is(o Link) bool { return l.Index == o.Index && l.MAC == o.MAC }

// Claim says that an interface is a pod's.
type Claim struct {
	Source Source `json:"source"`
	// Owner identifies the claim among those of its source: a later one with the same owner
	// replaces it. CNI has a container and the name of an interface in it.
	Owner string    `json:"owner"`
	Pod   api.PodID `json:"pod"`
	UID   string    `json:"uid,omitempty"` // of the pod; empty: not known
	// Sandbox identifies the sandbox of the pod, the id of a container for CNI. A pod has one at a
	// time, and interfaces of others are blocked. Empty: the source knows no sandboxes.
	Sandbox string `json:"sandbox,omitempty"`
	Network string `json:"network,omitempty"` // of CNI; empty: it is not one of a CNI plugin
	Link    Link   `json:"link"`
	// IPs are those that the pod got. Policy knows it by them until its own source has addresses of
	// it, and enforces only where that has one of them. Empty: not known.
	IPs   []netip.Addr `json:"ips,omitempty"`
	Since time.Time    `json:"since"`
}

// key identifies a claim.
type key struct {
	source Source
	owner  string
}

func (c Claim) key() key { return key{c.Source, c.Owner} }

// samePod reports whether two claims are for the same life of a pod.
func (c Claim) samePod(o Claim) bool {
	return c.Pod == o.Pod && c.UID == o.UID && c.Sandbox == o.Sandbox
}

// compareClaims orders claims, the best last: by source, then by time.
func compareClaims(a, b Claim) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner))
}

// Endpoint is an interface of the node with all that is known of it.
type Endpoint struct {
	Link   Link
	Pod    api.PodID // the zero value in StateUnknown
	UID    string
	State  State
	Source Source    // SourceNone in StateUnknown
	Since  time.Time // of the state
	Reason string    // why it is blocked; empty in StateEnforced
}
