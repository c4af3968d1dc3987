package acl

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
)

// bounds are what is done at once at most, and how large ACLs become.
type bounds struct {
	layout.Sizes
	// sharers is how many interfaces have the ACLs of a large table together.
	sharers int
	// pause is how many entries VPP may take off its interfaces in one call, and put there again.
	pause int
	// statistics is the size of VPP's statistics segment in bytes; VPP's default as long as it is
	// not known.
	statistics int
	// turns is for how long a commit begins with changes that take long.
	turns time.Duration
	guard expand.GuardSizes
}

func defaultBounds() bounds {
	return bounds{Sizes: layout.DefaultSizes(), sharers: 5, pause: 20_000, statistics: 32 << 20, turns: maxTurns,
		guard: expand.GuardSizes{Entries: 256, Peers: 1024, Blocks: 128}}
}

// isDueAt says whether a quiet moment is to be used to make room in a slot.
func (b *bounds) isDueAt(s *slot) bool {
	if s.name == youngSlot {
		return slices.ContainsFunc(s.want, b.IsDueGlobally)
	}
	return b.IsDue(layout.Content{Pieces: s.want, Roles: s.roles})
}
