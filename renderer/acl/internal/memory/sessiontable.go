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

// What the table of sessions takes from the main heap of VPP 25.10, in bytes. VPP makes it with the
// first ACL that an interface gets. The hash tables in which it looks sessions up grow with the
// sessions and never shrink; how much one takes depends on the family and on how many there are.
const (
	placeBytes   = 133     // a place, for each thread
	lookupTables = 7 << 20 // the hash tables without sessions
	sessionBytes = 480     // a session in them, at most, as seen with up to 3 million of them; 140 to 240 with 500 000
)

// A table is full from fullFrom percent on until it is below emptyBelow. Between two looks a flood
// takes more than the rest, and a table from which idle sessions go all the time is never quite
// full.
const (
	fullFrom   = 95
	emptyBelow = 90
)

const (
	// sessionsShare is the part of the time that looks at the table may pause VPP: it walks the
	// hash tables to answer, 20 ms with 500 000 sessions.
	sessionsShare = 1000
	// sessionsLogged is how often at most it is logged that the table is full.
	sessionsLogged = time.Minute
)

// SessionTable is what is known of the vswitch's table of sessions.
type SessionTable struct {
	renderer.Sessions                   // zero when nothing is known
	made              bool              // it has the places that it will ever have
	hashed            uint64            // bytes that the hash tables take
	Threads           uint64            // each has places of its own, and leaves one free
	at                map[uint32]uint64 // sessions by interface

	next         time.Time // it is not looked at before
	full, logged bool      // since it is full, that was logged
	loggedAt     time.Time
}

// toMake is what the table takes of VPP's heap as soon as it is made.
func (t *SessionTable) toMake() uint64 {
	if t.made || t.Max == 0 {
		return 0
	}
	return t.Threads*t.Max*placeBytes + lookupTables
}

// toGrow is what sessions may take beside the table.
func (t *SessionTable) toGrow() uint64 {
	need := t.Max * sessionBytes
	return need - min(need, t.hashed)
}

// StartSessions looks at the table of a vswitch that is new, and has it made as large as it is to
// be.
func (m *Memory) StartSessions(ctx context.Context) error {
	m.Sessions = SessionTable{Threads: 1, loggedAt: m.Sessions.loggedAt}
	if err := m.LookAtSessions(ctx); err != nil {
		return err
	}
	return m.resizeSessions(ctx)
}

// LookAtSessions asks how full the table is, unless it was asked too recently.
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

// sessionsMade notes that the table is made. The last figure of the heap may be older.
func (m *Memory) sessionsMade() {
	m.Heap.tableMade(m.Sessions.toMake())
	m.Sessions.made = true
}

// judgeSessions decides whether the table is full, and logs it.
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
			m.Log.Info("the session table has places again", "sessions", t.Used, "limit", t.Max)
		}
	}
	t.Most = m.Most(t.at)
	if t.full && now.Sub(t.loggedAt) >= sessionsLogged {
		t.logged, t.loggedAt = true, now
		m.Log.Warn("vpp's session table is full: new flows are dropped", "sessions", t.Used, "limit", t.Max, "most", t.Most,
			"remedy", "raise --session-table, or lower --udp-idle-timeout")
	}
}

// Err says that the table is full, if it is.
func (t *SessionTable) Err() error {
	if !t.full {
		return nil
	}
	most := ""
	if t.Most != "" {
		most = "; " + t.Most
	}
	return fmt.Errorf("%w; %d of %d places are taken%s", renderer.ErrSessionsFull, t.Used, t.Max, most)
}

// State returns what is published; nil when nothing is known.
func (t *SessionTable) State() *renderer.Sessions {
	if t.Max == 0 {
		return nil
	}
	s := t.Sessions
	return &s
}

// resizeSessions has the table hold as many sessions as it is to. VPP takes any number at any time,
// and ends when a session finds no place: what is asked for beyond the places that there are is
// left.
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
	m.Log.Warn("the session table keeps its size", "wanted", n, "limit", t.Max, "reason", why)
	return nil
}

// refusesSessions says why the table cannot have so many places; nothing when it can.
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
		why = fmt.Sprintf("vpp has made it already, with fewer places; restart vpp, or have \"acl-plugin { connection count max %d }\" in its startup configuration", n)
	}
	return why, err
}

// fitsHeap says why VPP's heap has no room for so many bytes; nothing when it has, and when its
// size is not known.
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
		why = fmt.Sprintf("full, it takes %d MiB of vpp's heap, which has %d MiB, %d of them taken", bytes>>20, u.Total>>20, u.Used>>20)
	}
	return why, nil
}

// The lines of "show acl-plugin sessions" that are read.
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

// parseHashed adds up what the hash tables take.
func parseHashed(text string) (bytes uint64) {
	for _, m := range hashLine.FindAllStringSubmatch(text, -1) {
		bytes += parseSize(strings.ToUpper(m[1]))
	}
	return bytes
}

// parsePorts returns how many sessions each interface has, over all threads.
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
