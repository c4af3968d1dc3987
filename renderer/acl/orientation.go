package acl

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/renderer/cache"
)

// Orientation says where packets meet the rules for what pods send.
type Orientation uint8

const (
	// Outputs has all rules where packets leave the vswitch, at the interface of the
	// receiving pod or at an uplink: behind the translation of services.
	Outputs Orientation = iota
	// Split has the rules for what a pod sends where that enters, at its own interface:
	// ahead of whatever translates its address. Destinations must not be translated
	// behind that.
	Split
)

// String returns "outputs" or "split".
func (o Orientation) String() string {
	if o == Split {
		return "split"
	}
	return "outputs"
}

// UnmarshalText reads what String returns.
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

// errSplit is why an open flow cannot be cut with Split: the input list is then a list
// of rules. Each change of it is a change of the input, with which the vswitch forgets
// who opened a flow; and since an ACK does not tell either, a permit that opens the way
// back would undo what the output list revokes. docs/adr/0029-split-and-revocation.md has more.
var errSplit = errors.New("orientation split needs established: keep, since the vswitch cannot tell there who opened a flow")

// newCache returns what makes tables of rules.
func newCache(o Orientation) *cache.Pair {
	if o == Split {
		return cache.NewSplit()
	}
	return cache.NewGuarded()
}
