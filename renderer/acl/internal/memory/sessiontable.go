package memory

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
)

// Memory that the session table uses in the main heap of VPP 25.10, in bytes. VPP allocates the
// table when the first interface gets an ACL. The hash tables that look up sessions grow with the
// sessions and never shrink; the use for each session depends on the family and on the number of
// sessions.
const (
	placeBytes   = 133     // one session entry, for each thread
	lookupTables = 7 << 20 // the hash tables without sessions
	sessionBytes = 480     // maximum use of the hash tables by one session, measured with up to 3 million; 140 to 240 with 500 000
)

// The table counts as full from fullFrom percent until it is below emptyBelow. A flood can take the
// rest between two samples, and a table from which idle sessions are removed all the time is never
// quite full.
const (
	fullFrom   = 95
	emptyBelow = 90
)

const (
	// 1/sessionsShare of the time may be spent on samples of the table. VPP pauses to walk the hash
	// tables: 20 ms with 500 000 sessions.
	sessionsShare = 1000
	// sessionsLogged is the minimum interval between log messages about a full table.
	sessionsLogged = time.Minute
)

// SessionTable is the known state of the vswitch's session table.
type SessionTable struct {
	renderer.Sessions                   // zero when unknown
	made              bool              // the table is allocated with its final size
	hashed            uint64            // bytes used by the hash tables
	Threads           uint64            // each thread has its own entries, and leaves one free
	at                map[uint32]uint64 // sessions by interface

	next         time.Time // earliest time of the next sample
	full, logged bool      // when it became full, and when that was logged
	loggedAt     time.Time
}

// toMake returns the heap memory that the table takes when it is allocated.
func (t *SessionTable) toMake() uint64 {
	if t.made || t.Max == 0 {
		return 0
	}
	return t.Threads*t.Max*placeBytes + lookupTables
}

// toGrow returns the heap memory that sessions may take in addition to the table.
func (t *SessionTable) toGrow() uint64 {
	need := t.Max * sessionBytes
	return need - min(need, t.hashed)
}

// StartSessions reads the session table of a new vswitch, and sets the configured size.
func (m *Memory) StartSessions(ctx context.Context) error {
	m.Sessions = SessionTable{Threads: 1, loggedAt: m.Sessions.loggedAt}
	if err := m.LookAtSessions(ctx); err != nil {
		return err
	}
	return m.resizeSessions(ctx)
}

// LookAtSessions samples the fill level of the table, unless the last sample is too recent.
func (m *Memory) LookAtSessions(ctx context.Context) error {
	t, began := &m.Sessions, time.Now()
	if began.Before(t.next) {
		return nil
	}
	text, err := m.Link.Ask(ctx, "show acl-plugin sessions")
	if err != nil {
		return fmt.Errorf("ask the vswitch for its sessions: %w", err)
	}
	t.next = began.Add(sessionsShare * time.Since(began))
	used, ok := parseSessions(text)
	if !ok {
		return nil
	}
	if !strings.Contains(text, "hash table is not allocated") {
		m.sessionsMade()
	}
	t.Used = used
	if t.Threads, t.Max, err = m.Link.SessionLimit(ctx); err != nil {
		return err
	}
	t.hashed = parseHashed(text)
	t.at = parsePorts(text)
	m.judgeSessions(began)
	return nil
}

// sessionsMade records that the table is allocated. The last heap figure may be older.
func (m *Memory) sessionsMade() {
	m.Heap.tableMade(m.Sessions.toMake())
	m.Sessions.made = true
}

// judgeSessions decides whether the table is full, and logs changes.
func (m *Memory) judgeSessions(now time.Time) {
	t := &m.Sessions
	switch was := t.full; {
	case t.Max == 0:
		return
	case t.Used*100 >= t.Max*fullFrom || t.Used+t.Threads >= t.Max:
		t.full = true
	case t.Used*100 < t.Max*emptyBelow:
		if t.full = false; was && t.logged {
			t.logged = false
			m.Log.Info("the session table is no longer full", "sessions", t.Used, "limit", t.Max)
		}
	}
	t.Most = m.Most(t.at)
	if t.full && now.Sub(t.loggedAt) >= sessionsLogged {
		t.logged, t.loggedAt = true, now
		m.Log.Warn("vpp's session table is full and new flows are dropped", "sessions", t.Used, "limit", t.Max, "most", t.Most,
			"remedy", "raise --session-table, or lower --udp-idle-timeout")
	}
}

// Err returns an error while the table is full.
func (t *SessionTable) Err() error {
	if !t.full {
		return nil
	}
	most := ""
	if t.Most != "" {
		most = "; " + t.Most
	}
	return fmt.Errorf("%w; %d of %d entries are used%s", renderer.ErrSessionsFull, t.Used, t.Max, most)
}

// State returns the published state; nil when nothing is known.
func (t *SessionTable) State() *renderer.Sessions {
	if t.Max == 0 {
		return nil
	}
	s := t.Sessions
	return &s
}

// resizeSessions sets the configured size of the table. VPP accepts any size at any time, but
// aborts when a session finds no free entry. So a size beyond the allocated entries is not set.
func (m *Memory) resizeSessions(ctx context.Context) error {
	t, n := &m.Sessions, m.Places
	if n == 0 || n == t.Max {
		return nil
	}
	why, err := m.refusesSessions(ctx, n)
	if err != nil {
		return err
	}
	if why == "" {
		if _, err := m.Link.Ask(ctx, fmt.Sprintf("set acl-plugin session table max-entries %d", n)); err != nil {
			return err
		}
		if t.Threads, t.Max, err = m.Link.SessionLimit(ctx); err != nil {
			return err
		}
		m.judgeSessions(time.Now())
		if t.Max == n {
			return nil
		}
		why = "the vswitch does not take the number"
	}
	m.Log.Warn("could not resize the session table", "wanted", n, "limit", t.Max, "reason", why)
	return nil
}

// refusesSessions returns the reason why the table cannot have the given number of entries, or "".
func (m *Memory) refusesSessions(ctx context.Context, n uint64) (why string, err error) {
	t := m.Sessions
	switch {
	case t.Max == 0:
		return "the vswitch does not say how large it is", nil
	case !t.made:
		t.Max = n
		return m.fitsHeap(ctx, t.toMake()+t.toGrow())
	case n < t.Max:
		return "", nil
	}
	text, err := m.Link.Ask(ctx, fmt.Sprintf("show acl-plugin sessions thread 0 index %d", n-1))
	if err == nil && !strings.Contains(text, fmt.Sprintf("session index %d:", n-1)) {
		why = fmt.Sprintf("vpp has already allocated a smaller table; restart vpp, or put \"acl-plugin { connection count max %d }\" into its startup configuration", n)
	}
	return why, err
}

// fitsHeap returns the reason why VPP's heap has no room for the given bytes. It returns "" when
// there is room or the size of the heap is unknown.
func (m *Memory) fitsHeap(ctx context.Context, bytes uint64) (why string, err error) {
	if m.IsEmbedded {
		return "", nil
	}
	var u counters.Usage
	ok := false
	if m.Stats != nil {
		u, ok = m.Stats.Heap()
	}
	if !ok {
		text, err := m.Link.Ask(ctx, "show memory main-heap")
		if err != nil {
			return "", fmt.Errorf("ask the vswitch for its memory: %w", err)
		}
		u, ok = parseHeap(text)
	}
	if gone := u.Used + bytes; ok && gone > u.Total-u.Total/(2*reserve) {
		why = fmt.Sprintf("a full table needs %d MiB of vpp's heap, which has %d MiB with %d MiB in use", bytes>>20, u.Total>>20, u.Used>>20)
	}
	return why, nil
}

// The lines that are parsed in the output of "show acl-plugin sessions".
var (
	sessionsLine = regexp.MustCompile(`Sessions total: add \d+ - del \d+ = (\d+)`)
	portLine     = regexp.MustCompile(`sw_if_index (\d+): add \d+ - del \d+ = (\d+)`)
	hashLine     = regexp.MustCompile(`bytes: used ([0-9.]+[kmg]?)`)
)

func parseSessions(text string) (used uint64, ok bool) {
	m := sessionsLine.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	used, err := strconv.ParseUint(m[1], 10, 64)
	return used, err == nil
}

// parseHashed returns the total memory of the hash tables.
func parseHashed(text string) (bytes uint64) {
	for _, m := range hashLine.FindAllStringSubmatch(text, -1) {
		bytes += parseSize(strings.ToUpper(m[1]))
	}
	return bytes
}

// parsePorts returns the number of sessions of each interface, over all threads.
func parsePorts(text string) map[uint32]uint64 {
	sums := make(map[uint32]uint64)
	for _, m := range portLine.FindAllStringSubmatch(text, -1) {
		i, err := strconv.ParseUint(m[1], 10, 32)
		n, errN := strconv.ParseUint(m[2], 10, 64)
		if errors.Join(err, errN) == nil {
			sums[uint32(i)] += n
		}
	}
	return sums
}
