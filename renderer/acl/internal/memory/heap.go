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

// What entries take from the main heap of VPP 25.10, in bytes. VPP does not give a
// message back that says no: it aborts when the heap is used up. So what does not
// fit must never be sent.
const (
	HeldBytes    = 160 // an entry as such: as it was sent, and prepared for look-ups
	AppliedBytes = 172 // an entry on an interface: 48, half of that more in a vector that grew, and a vector of 96 for what collides with it
)

// The hash table in which VPP looks up the entries of all interfaces (bihash_48_8) has this
// many buckets, each of a power of two of pages of four keys. A page that overflows has its
// bucket doubled. Old pages go to free lists of their size and never back to the heap.
const (
	hashBuckets = 65536
	HashPage    = 224
)

// keyBytes is what the hash table takes for an applied entry beside so many others, at most, as the
// plugin's own code was seen to do with 0.1 to 64 entries a bucket.
func keyBytes(applied int) float64 {
	x := float64(applied) / hashBuckets
	return HashPage/(1+x) + 66*math.Sqrt(x)
}

// LookupBytes is what the hash table takes for so many applied entries.
func LookupBytes(applied int) uint64 { return uint64(float64(applied) * keyBytes(applied)) }

// rehashBytes is what the hash table grows by when some of the applied entries get other keys. It
// is as for new entries: buckets that have become sparse never shrink, so others double; and
// entries that had a key together may get one each.
func rehashBytes(some, applied int) uint64 { return uint64(float64(some) * keyBytes(applied)) }

// reserve is the part of the heap that ACLs must leave: for everything else, for messages on
// their way, and for what is free in pieces that are too small.
const reserve = 8

// sessionReserve is the part that is left for sessions, if they may need so much.
const sessionReserve = 4

// slack is what ACLs may grow by, at least, where nobody says how large the heap is.
const slack = 16 << 20

// Demand is what a plan takes, from call to call.
type Demand struct {
	Held, Applied int    // entries before the plan; those of all lists
	Peak, Low     uint64 // of entryBytes; low is with what the hash table takes
	Most          int    // applied entries at the worst moment
	Rehashed      int    // applied entries that may get other keys
}

// rehashBytes is what the hash table may grow by, when there were so many applied entries once.
func (d Demand) rehashBytes(most int) uint64 { return rehashBytes(d.Rehashed, max(most, d.Most)) }

// Heap is the memory of VPP, and what of it our ACLs may take altogether, those of today included.
// What VPP keeps of look-ups that are no more is taken for ours: it will use it again.
type Heap struct {
	Budget uint64 // 0 when nothing is known: then everything is tried
	Needed uint64 // at the worst moment of the last commit, with what was refused

	Last   counters.Usage
	asked  bool   // the command line was asked, or its answer is done without
	ours   uint64 // what ACLs took, at least, when the last figure was made
	low    uint64 // the least that they took since VPP was asked last
	Most   int    // applied entries at any time
	rehash uint64 // that plans may have caused since VPP was asked last
	unseen uint64 // and before that, when the last figure may not have it yet
	table  uint64 // that the table of sessions took, when the last figure may not have it yet
	fresh  bool   // it was made since VPP was asked last
}

// left is what others than our ACLs leave of a heap that a figure is about.
func (h *Heap) left(u counters.Usage, t *SessionTable) uint64 {
	free := u.Total - max(u.Total/reserve, min(t.toGrow(), u.Total/sessionReserve)) + h.ours
	return free - min(free, u.Used+h.unseen+h.table+t.toMake())
}

// bytes is what entries take, with what VPP keeps.
func (h *Heap) bytes(held, applied int) uint64 {
	return EntryBytes(held, applied) + LookupBytes(max(h.Most, applied))
}

// EntryBytes is what entries take, so many as such and so many on interfaces, without their
// look-ups.
func EntryBytes(held, applied int) uint64 {
	return uint64(held)*HeldBytes + uint64(applied)*AppliedBytes
}

// look takes a figure; now is what our ACLs take. A figure may be from any time since the one
// before it was seen, so what ACLs took then is not known: at least the least of that time, which
// of the first figure is nothing.
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

// Plan notes that a plan is carried out.
func (h *Heap) Plan(f Demand) {
	h.low = min(h.low, f.Low)
	h.rehash = repeated(h.rehash, f.rehashBytes(h.Most))
	h.Most = max(h.Most, f.Most)
}

// Needs returns what ACLs take at the worst moment of a plan.
func (h *Heap) Needs(f Demand) uint64 {
	return f.Peak + LookupBytes(max(h.Most, f.Most)) + f.rehashBytes(h.Most)
}

// repeated adds up what entries may take that get other keys twice: most buckets that have doubled
// hold those of the second time, too. When 880 000 applied entries got other keys the first time, a
// VPP took 475 MB more; the second time it took 54 (TestRealVPPMemoryOfEntries). One in which 700
// 000 got other keys every 3 s had no more heap in use after half an hour.
func repeated(a, b uint64) uint64 { return max(a, b) + min(a, b)/8 }

// tableMade notes that VPP has made the table of sessions. The last figure may be older.
func (h *Heap) tableMade(bytes uint64) { h.table, h.fresh = h.table+bytes, h.fresh || bytes > 0 }

// Memory is what VPP has of memory: its heap, what our ACLs may take of it, and its table of
// sessions.
type Memory struct {
	Heap     Heap
	Sessions SessionTable
	Stats    *counters.Statistics // nil when they are not read
	Link     *mirror.Link
	Log      *slog.Logger

	Limit      uint64                            // of what ACLs may take, in bytes; 0: VPP is asked
	Places     uint64                            // that the table of sessions is to have; 0: those that it has
	IsEmbedded bool                              // the vswitch has no limit
	Most       func(at map[uint32]uint64) string // names who has the most sessions, by interface
}

// Ask brings up to date how much memory there is, before a plan and after it; our ACLs have so
// many entries now. The embedded vswitch has no limit; what cannot be understood is none either.
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
			if u.Boot != h.Last.Boot { // another VPP
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

// askCommandLine is for a VPP whose statistics segment cannot be read. Its answer has VPP look
// at every page of the heap, which pauses it for half a second, so it is asked once, and only
// while no interface has ACLs of ours. Later they may not grow by much.
func (m *Memory) askCommandLine(ctx context.Context, applied int, now uint64) error {
	h := &m.Heap
	if applied > 0 {
		h.asked, h.Budget = true, now+max(now/reserve, slack)
		m.Log.Warn("the size of vpp's heap is not known: acls may grow by an eighth; set --vpp-stats-socket or --acl-memory",
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
		m.Log.Warn("the vswitch does not say how much memory it has: tables are not held against it", "answer", text)
		return nil
	}
	h.look(u, now, &m.Sessions)
	return nil
}

// errFull is returned instead of a call when the heap of VPP is nearly used up, by whomever.
var errFull = fmt.Errorf("vpp's heap is nearly used up, nothing is added: %w (%w)", entries.ErrTooLarge, entries.ErrMayPass)

// errFullSegment is the same for the statistics segment, in which VPP counts what entries decide.
var errFullSegment = fmt.Errorf("vpp's statistics segment is nearly used up, nothing is added; start vpp with a larger one (statseg { size }): %w (%w)", entries.ErrTooLarge, entries.ErrMayPass)

// Room looks at the heap before a call that may take memory. It costs a look at shared memory.
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

// heapLine is how VPP writes the use of a heap; all threads have the same one.
var heapLine = regexp.MustCompile(`total: ([0-9.]+[KMG]?), used: ([0-9.]+[KMG]?), free: [0-9.]+[KMG]?`)

func parseHeap(text string) (counters.Usage, bool) {
	m := heapLine.FindStringSubmatch(text)
	if m == nil {
		return counters.Usage{}, false
	}
	u := counters.Usage{Total: parseSize(m[1]), Used: parseSize(m[2])}
	return u, u.Total > 0
}

// parseSize reads a size as VPP writes it; 0 for anything else.
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

// Lacks returns how many bytes more a plan needs than there are. One that never takes more than
// there is now lacks none, whatever is known of the heap.
func (h *Heap) Lacks(f Demand) uint64 {
	needs := h.Needs(f)
	if h.Budget == 0 || needs <= h.bytes(f.Held, f.Applied) {
		return 0
	}
	return needs - min(needs, h.Budget)
}
