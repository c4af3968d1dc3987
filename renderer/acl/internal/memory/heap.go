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

// Memory that an entry takes in the main heap of VPP 25.10, in bytes: 160 in its ACL, as sent and
// prepared for lookups, and 172 on its interface: 48, half of that again in a grown vector, and a
// vector of 96 for colliding entries. VPP does not reject a message when the heap is exhausted: it
// aborts. So a change that does not fit must never be sent.
const entryBytes = 160 + 172

// VPP looks up the entries of all interfaces in one hash table (bihash_48_8). It has this many
// buckets, each with a power of two of pages with four keys. When a page overflows, its bucket is
// doubled. Old pages go to free lists by size, and never back to the heap.
const (
	hashBuckets = 65536
	hashPage    = 224
)

// lookupBytes returns the memory that the hash table takes for entries that are written once. It was
// measured with the plugin's own code at 0.1 to 64 entries for each bucket.
func lookupBytes(n int) float64 {
	x := float64(n) / hashBuckets
	return float64(n) * (hashPage/(1+x) + 66*math.Sqrt(x))
}

// margin is how much more memory entries may take than when they are written once: entries get other
// keys when something changes in front of them, and buckets that are sparse then do not shrink. 940 000
// entries took 570 bytes each when written, and 1 159 after a deny had come in front of them and gone.
const margin = 2

// Bytes returns the memory that entries may take.
func Bytes(n int) uint64 { return bytes(n, n) }

// bytes is Bytes if there were more entries before: VPP keeps the memory of their lookups.
func bytes(n, most int) uint64 { return margin * written(n, most) }

// written is bytes without the margin.
func written(n, most int) uint64 {
	return uint64(n)*entryBytes + uint64(lookupBytes(max(n, most)))
}

// ACLs must leave 1/reserve of the heap for everything else, for messages in transit, and for
// fragmentation.
const reserve = 8

// 1/sessionReserve of the heap is left for sessions, if they may need so much.
const sessionReserve = 4

// slack is the minimum growth that ACLs are allowed where the heap size is unknown.
const slack = 16 << 20

// Heap tracks VPP's main heap, and the total that our ACLs may use, including current ones.
type Heap struct {
	Budget uint64 // 0 when unknown: then nothing is refused
	Needed uint64 // by what is installed, and by refused tables
	Most   int    // entries so far

	Last  counters.Usage
	asked bool   // the command line has answered, or is not needed
	least int    // entries since the last figure
	ours  uint64 // of Last
	table uint64 // memory of the session table, if the last figure may not include it
	fresh bool   // the session table was made since the last query
}

// look takes over a figure; n is how many entries there are. VPP makes figures every 10 s, so this one
// is about any moment since the previous one.
func (h *Heap) look(u counters.Usage, n int, t *SessionTable) {
	if h.Last == (counters.Usage{}) {
		h.least = n
	}
	if h.least = min(h.least, n); u.Beat != h.Last.Beat || h.Last == (counters.Usage{}) {
		if h.ours = written(h.least, h.Most); !h.fresh {
			h.table = 0
		}
		h.least = n
	}
	h.fresh, h.Last = false, u
	others := u.Used - min(u.Used, h.ours) + h.table + t.toMake()
	free := u.Total - max(u.Total/reserve, min(t.toGrow(), u.Total/sessionReserve))
	h.Budget = max(1, free-min(free, others))
}

// Forget forgets what a VPP without figures has answered.
func (h *Heap) Forget() { h.Budget, h.asked = 0, false }

// tableMade records that VPP has allocated the session table. The last figure may be older.
func (h *Heap) tableMade(bytes uint64) { h.table, h.fresh = h.table+bytes, h.fresh || bytes > 0 }

// Memory tracks the heap of VPP, the part that our ACLs may use, and the session table.
type Memory struct {
	Heap     Heap
	Sessions SessionTable
	Stats    *counters.Statistics // nil when statistics are not read
	Link     *mirror.Link
	Log      *slog.Logger

	Limit      uint64 // maximum memory of ACLs in bytes; 0: ask VPP
	Places     uint64 // size that the session table must get; 0: keep it
	IsEmbedded bool   // the embedded vswitch has no limit
	segment    segment
	tooMany    bool                              // there are more entries than ceiling, and a warning about it
	Most       func(at map[uint32]uint64) string // returns the pod interface with the most sessions, given sessions by interface
}

// ceiling is up to how many entries on interfaces VPP changes them quickly: 1 000 peers on 100
// interfaces, and a little more.
const ceiling = 1 << 17

// Lack says what VPP has too little of for so many entries, and for the counters of so many; it is
// empty if VPP has enough.
func (m *Memory) Lack(n, counted int) string {
	switch {
	case !m.IsEmbedded && !m.segment.fits(counted, m.Sessions.Threads):
		return fmt.Sprintf("do not fit into the statistics segment of the vswitch, of %d MB, which keeps the counters of earlier entries, too: start vpp with a larger one (statseg { size })",
			(m.segment.size()+1<<19)>>20)
	case m.Heap.Budget > 0 && bytes(n, m.Heap.Most) > m.Heap.Budget:
		return "take more than the vswitch has left"
	}
	return ""
}

// Plan records that there will be up to so many entries. wanted are those with refused tables.
func (m *Memory) Plan(n, wanted int) {
	m.Heap.Needed, m.Heap.Most = bytes(wanted, m.Heap.Most), max(m.Heap.Most, n)
	if was := m.tooMany; !m.IsEmbedded && wanted > ceiling && !was {
		m.Log.Warn("the rules of this node are more than vpp's acls are made for: changes take long, and vpp forwards nothing meanwhile; use --renderers vpp-plugin",
			"entries", wanted, "ceiling", ceiling)
	}
	m.tooMany = wanted > ceiling
}

// Ask updates the available memory, before and after a plan. n is how many entries there are, and
// counted how many have counters. The embedded vswitch has no limit; neither has a vswitch whose answer
// cannot be parsed.
func (m *Memory) Ask(ctx context.Context, n, counted int) error {
	h := &m.Heap
	if n > 0 {
		m.sessionsMade()
	}
	var u counters.Usage
	known := false
	if m.Stats != nil {
		if u, known = m.Stats.Heap(); known {
			m.segment.look(u, counted)
		}
	}
	switch {
	case m.Limit > 0:
		h.Budget = m.Limit
		return nil
	case m.IsEmbedded:
		h.Budget = 0
		return nil
	}
	if known {
		if u.Boot != h.Last.Boot { // another VPP process
			*h = Heap{Most: n, Needed: h.Needed}
		}
		h.look(u, n, &m.Sessions)
		return nil
	}
	if h.asked {
		return nil
	}
	return m.askCommandLine(ctx, n)
}

// askCommandLine is for a VPP whose statistics segment cannot be read. To answer, VPP looks at
// every page of the heap, which pauses it for half a second. So it is asked once, and only while no
// interface has ACLs of ours. Otherwise ACLs may only grow a little.
func (m *Memory) askCommandLine(ctx context.Context, n int) error {
	h := &m.Heap
	if n > 0 {
		now := Bytes(n)
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
	h.look(u, n, &m.Sessions)
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

// About rounds to one significant digit, so that a repeated refusal is not reported as a new one.
func About(n int) int {
	unit := 1
	for n/unit >= 10 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}
