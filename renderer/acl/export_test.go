package acl

// SpareTag is the tag of ACLs that are kept for long lists.
const SpareTag = spareTag

// Shrink has a few entries make a large table, so that small states show everything
// that happens to large ones. It must be called before the first commit.
func (r *Renderer) Shrink() { r.sizes = tiny }

// LimitStatistics has the vswitch have a statistics segment of so many bytes, from the next read on.
func (r *Renderer) LimitStatistics(bytes int) { r.sizes.statistics = bytes }

// Bytes is what so many entries are taken for, as such and on interfaces.
func Bytes(held, applied int) uint64 { return entryBytes(held, applied) + lookupBytes(applied) }

// OneTurn has every Commit change one slot whose changes take long.
func (r *Renderer) OneTurn() { r.sizes.turns = 0 }
