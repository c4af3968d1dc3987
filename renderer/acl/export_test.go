package acl

import (
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// SpareTag is the tag of ACLs that are kept for long lists.
const SpareTag = mirror.SpareTag

// Shrink has a few entries make a large table, so that small states show everything that happens to
// large ones, and a Commit change one slot whose changes take long. It must be called before the
// first commit.
func (r *Renderer) Shrink() {
	r.bounds = bounds{Sizes: layout.Sizes{Whole: 2, Young: 2, Peers: 2, Warm: 4, Full: 5, Most: 7}, sharers: 2, pause: 4, statistics: 32 << 20,
		guard: expand.GuardSizes{Entries: 2, Peers: 3, Blocks: 2}}
}

// LimitStatistics has the vswitch have a statistics segment of so many bytes, from the next read
// on.
func (r *Renderer) LimitStatistics(bytes int) { r.bounds.statistics = bytes }

// Bytes is what so many entries are taken for, as such and on interfaces.
func Bytes(held, applied int) uint64 {
	return memory.EntryBytes(held, applied) + memory.LookupBytes(applied)
}

// OneTurn has every Commit change one slot whose changes take long.
func (r *Renderer) OneTurn() { r.bounds.turns = 0 }
