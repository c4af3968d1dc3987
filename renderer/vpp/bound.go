package vpp

import (
	"time"

	"github.com/sluice-net/sluice/api"
)

// Bound describes an interface of a pod after an Apply.
type Bound struct {
	Name  string
	Index uint32
	Tag   string
	UID   string    // of the pod that sluice-cni made it for; empty: unknown
	Pod   api.PodID // the pod whose rules it has; zero when it is blocked
	// State is BoundEnforced when the interface has the rules of its pod. In every other state it
	// is blocked, for the given Reason.
	State  string
	Reason string
	Since  time.Time // start of the state
}

// The states of an interface.
const (
	BoundEnforced    = "enforced"    // traffic that the pod's rules permit passes
	BoundPending     = "pending"     // blocked until the policy of its pod is known and in force
	BoundOrphaned    = "orphaned"    // blocked: it was a pod's, and its pod is no longer known
	BoundConflicting = "conflicting" // blocked: several pods claim it
)
