package acl

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Orientation is where the rules for what pods send are applied.
type Orientation uint8

const (
	// Outputs applies all rules on output: at the interface of the receiving pod or at an uplink,
	// behind the translation of services.
	Outputs Orientation = iota
	// Split applies the rules for what a pod sends on input, at the pod's own interface, ahead of
	// any translation of its address. Destinations must not be translated behind that.
	Split
)

// String returns "outputs" or "split".
func (o Orientation) String() string {
	if o == Split {
		return "split"
	}
	return "outputs"
}

// UnmarshalText parses the output of String.
func (o *Orientation) UnmarshalText(text []byte) error {
	switch string(text) {
	case "outputs":
		*o = Outputs
	case "split":
		*o = Split
	default:
		return fmt.Errorf("orientation %q: want outputs or split", text)
	}
	return nil
}

// errSplit explains why Split cannot revoke open flows. The input list then contains rules. Each
// change of it makes the vswitch forget which side opened a flow; an ACK does not show it either,
// so a permit that lets replies pass would undo what the output list revokes. See
// docs/adr/0011-direction-owned-sessions.md.
var errSplit = errors.New("orientation split needs established: keep, since the vswitch cannot tell there who opened a flow")

// newCache returns the cache for an orientation.
func newCache(o Orientation) *cache.Pair {
	if o == Split {
		return cache.NewSplit(expand.Bound)
	}
	return cache.NewGuarded(expand.Bound)
}
