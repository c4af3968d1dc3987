package memory

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// Memory that entries use in the main heap of VPP 25.10, in bytes. VPP does not reject a message
// when the heap is exhausted: it aborts. So a change that does not fit must never be sent.
const (
	HeldBytes    = 160 // an entry as such: as sent, and prepared for lookups
	AppliedBytes = 172 // an entry on an interface: 48, half of that again in a grown vector, and a vector of 96 for colliding entries
)

// VPP looks up the entries of all interfaces in one hash table (bihash_48_8). It has this many
// buckets, each with a power of two of pages with four keys. When a page overflows, its bucket is
// doubled. Old pages go to free lists by size, and never back to the heap.
const (
	hashBuckets = 65536
	HashPage    = 224
)

// keyBytes is the maximum memory that one applied entry uses in the hash table when the given
// number of entries is applied. It was measured with the plugin's own code at 0.1 to 64 entries for
// each bucket.
func keyBytes(applied int) float64 {
	x := float64(applied) / hashBuckets
	return HashPage/(1+x) + 66*math.Sqrt(x)
}

// LookupBytes returns the memory that the hash table uses for the given number of applied entries.
func LookupBytes(applied int) uint64 { return uint64(float64(applied) * keyBytes(applied)) }

// rehashBytes returns the growth of the hash table when some of the applied entries get other keys.
// It is the same as for new entries: sparse buckets never shrink, so others are doubled, and
// entries that shared a key may get one each.
func rehashBytes(some, applied int) uint64 { return uint64(float64(some) * keyBytes(applied)) }

// ACLs must leave 1/reserve of the heap for everything else, for messages in transit, and for
// fragmentation.
const reserve = 8

// 1/sessionReserve of the heap is left for sessions, if they may need so much.
const sessionReserve = 4

// slack is the minimum growth that ACLs are allowed where the heap size is unknown.
const slack = 16 << 20

// Demand is the memory that a plan needs during its calls.
type Demand struct {
	Held, Applied int    // entries before the plan; Applied counts those of all lists
	Peak, Low     uint64 // maximum and minimum of EntryBytes; Low includes the hash table
	Most          int    // maximum of applied entries
	Rehashed      int    // applied entries that may get other keys
}

// rehashBytes returns the possible growth of the hash table; most is the highest number of applied
// entries so far.
func (d Demand) rehashBytes(most int) uint64 { return rehashBytes(d.Rehashed, max(most, d.Most)) }

// Heap tracks VPP's main heap, and the total that our ACLs may use, including current ones. Memory
// that VPP keeps from earlier lookups counts as ours, because VPP uses it again.
type Heap struct {
	Budget uint64 // 0 when unknown: then nothing is refused
	Needed uint64 // at the worst moment of the last commit, including refused tables

	Last   counters.Usage
	asked  bool   // the command line has answered, or is not needed
	ours   uint64 // minimum use by ACLs when the last figure was made
	low    uint64 // minimum use by ACLs since the last query
	Most   int    // maximum of applied entries so far
	rehash uint64 // growth that plans may have caused since the last query
	unseen uint64 // the same for the time before, if the last figure may not include it
	table  uint64 // memory of the session table, if the last figure may not include it
	fresh  bool   // the session table was made since the last query
}

// left returns the part of a heap that is not used by others than our ACLs.
func (h *Heap) left(u counters.Usage, t *SessionTable) uint64 {
	free := u.Total - max(u.Total/reserve, min(t.toGrow(), u.Total/sessionReserve)) + h.ours
	return free - min(free, u.Used+h.unseen+h.table+t.toMake())
}

// bytes returns the memory that entries use, including what VPP keeps.
func (h *Heap) bytes(held, applied int) uint64 {
	return EntryBytes(held, applied) + LookupBytes(max(h.Most, applied))
}

// EntryBytes returns the memory of entries without their lookups: held by ACLs, and applied on
// interfaces.
func EntryBytes(held, applied int) uint64 {
	return uint64(held)*HeldBytes + uint64(applied)*AppliedBytes
}

// look takes over a figure; now is the current use by our ACLs. VPP may have made a figure at any
// time since the previous one was seen, so the use at that time is only known to be at least the
// minimum since then. For the first figure that minimum is zero.
func (h *Heap) look(u counters.Usage, now uint64, t *SessionTable) {
	h.low = min(h.low, now)
	if u.Beat != h.Last.Beat {
		if h.unseen = h.rehash; !h.fresh {
			h.table = 0
		}
		h.ours = h.low
	} else {
		h.unseen = repeated(h.unseen, h.rehash)
	}
	h.fresh = false
	h.Last, h.low, h.rehash = u, now, 0
	h.Budget = max(1, h.left(u, t))
}

// Plan records that a plan is carried out.
func (h *Heap) Plan(f Demand) {
	h.low = min(h.low, f.Low)
	h.rehash = repeated(h.rehash, f.rehashBytes(h.Most))
	h.Most = max(h.Most, f.Most)
}

// Needs returns the memory that ACLs use at the worst moment of a plan.
func (h *Heap) Needs(f Demand) uint64 {
	return f.Peak + LookupBytes(max(h.Most, f.Most)) + f.rehashBytes(h.Most)
}

// repeated combines the growth of two rehashes. Most doubled buckets also hold the keys of the
// second one. When 880 000 applied entries got other keys for the first time, VPP took 475 MB more;
// the second time it took 54 MB (TestRealVPPMemoryOfEntries). A VPP in which 700 000 entries got
// other keys every 3 s used no more heap after half an hour.
func repeated(a, b uint64) uint64 { return max(a, b) + min(a, b)/8 }

// tableMade records that VPP has allocated the session table. The last figure may be older.
func (h *Heap) tableMade(bytes uint64) { h.table, h.fresh = h.table+bytes, h.fresh || bytes > 0 }

// Memory tracks the heap of VPP, the part that our ACLs may use, and the session table.
type Memory struct {
	Heap     Heap
	Sessions SessionTable
	Stats    *counters.Statistics // nil when statistics are not read
	Link     *mirror.Link
	Log      *slog.Logger

	Limit      uint64                            // maximum memory of ACLs in bytes; 0: ask VPP
	Places     uint64                            // size that the session table must get; 0: keep it
	IsEmbedded bool                              // the embedded vswitch has no limit
	Most       func(at map[uint32]uint64) string // returns the pod interface with the most sessions, given sessions by interface
}

// Ask updates the available memory, before and after a plan. held and applied are the current
// numbers of entries. The embedded vswitch has no limit; neither has a vswitch whose answer cannot
// be parsed.
func (m *Memory) Ask(ctx context.Context, held, applied int) error {
	h := &m.Heap
	if applied > 0 {
		m.sessionsMade()
	}
	switch {
	case m.Limit > 0:
		h.Budget = m.Limit
		return nil
	case m.IsEmbedded:
		h.Budget = 0
		return nil
	}
	if m.Stats != nil {
		if u, ok := m.Stats.Heap(); ok {
			if u.Boot != h.Last.Boot { // another VPP process
				*h = Heap{Most: applied, Needed: h.Needed}
			}
			h.look(u, h.bytes(held, applied), &m.Sessions)
			return nil
		}
	}
	if h.asked {
		return nil
	}
	return m.askCommandLine(ctx, applied, h.bytes(held, applied))
}

// askCommandLine is for a VPP whose statistics segment cannot be read. To answer, VPP looks at
// every page of the heap, which pauses it for half a second. So it is asked once, and only while no
// interface has ACLs of ours. Otherwise ACLs may only grow a little.
func (m *Memory) askCommandLine(ctx context.Context, applied int, now uint64) error {
	h := &m.Heap
	if applied > 0 {
		h.asked, h.Budget = true, now+max(now/reserve, slack)
		m.Log.Warn("could not determine the size of vpp's heap; acls may grow by an eighth: set --vpp-stats-socket or --acl-memory",
			"bytes", now, "limit", h.Budget)
		return nil
	}
	text, err := m.Link.Ask(ctx, "show memory main-heap")
	if err != nil {
		return fmt.Errorf("ask the vswitch for its memory: %w", err)
	}
	h.asked = true
	u, ok := parseHeap(text)
	if !ok {
		m.Log.Warn("could not parse the memory size of the vswitch; memory use of tables is not limited", "answer", text)
		return nil
	}
	h.look(u, now, &m.Sessions)
	return nil
}

// errFull is returned instead of making a call when VPP's heap is nearly exhausted, even if other
// plugins use it.
var errFull = fmt.Errorf("vpp's heap is nearly exhausted and no rules are added: %w (%w)", entries.ErrTooLarge, entries.ErrMayPass)

// errFullSegment is the same for the statistics segment, which contains the counters of entries.
var errFullSegment = fmt.Errorf("vpp's statistics segment is nearly exhausted and no rules are added; start vpp with a larger segment (statseg { size }): %w (%w)", entries.ErrTooLarge, entries.ErrMayPass)

// Room checks the heap before a call that may take memory. It only reads shared memory.
func (m *Memory) Room() error {
	if m.Stats == nil || m.Heap.Budget == 0 || m.Limit > 0 {
		return nil
	}
	u, ok := m.Stats.Heap()
	switch {
	case ok && u.Used > u.Total-u.Total/(2*reserve):
		return errFull
	case ok && u.SegmentUsed > u.Segment-u.Segment/(2*reserve):
		return errFullSegment
	}
	return nil
}

// heapLine matches VPP's line about the use of a heap. All threads share one heap.
var heapLine = regexp.MustCompile(`total: ([0-9.]+[KMG]?), used: ([0-9.]+[KMG]?), free: [0-9.]+[KMG]?`)

func parseHeap(text string) (counters.Usage, bool) {
	m := heapLine.FindStringSubmatch(text)
	if m == nil {
		return counters.Usage{}, false
	}
	u := counters.Usage{Total: parseSize(m[1]), Used: parseSize(m[2])}
	return u, u.Total > 0
}

// parseSize parses a size as printed by VPP; it returns 0 for anything else.
func parseSize(text string) uint64 {
	unit := 1.0
	for suffix, n := range map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if s, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = s, n
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n * unit)
}

// Lacks returns how many bytes a plan needs beyond those available. A plan that never needs more
// than the current use lacks none, whatever is known of the heap.
func (h *Heap) Lacks(f Demand) uint64 {
	needs := h.Needs(f)
	if h.Budget == 0 || needs <= h.bytes(f.Held, f.Applied) {
		return 0
	}
	return needs - min(needs, h.Budget)
}

// About rounds to one significant digit, so that a repeated refusal is not reported as a new one.
func About(n int) int {
	unit := 1
	for n/unit >= 10 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}
