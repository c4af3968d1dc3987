package vswitch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
)

// Timeouts are the idle timeouts of sessions.
type Timeouts struct {
	TCPTransient   time.Duration // not established, or closing; 120 s
	TCPEstablished time.Duration // 24 h
	Other          time.Duration // UDP, ICMP queries and the rest; 600 s
}

// sessionState determines the timeout of a session.
type sessionState uint8

const (
	// TCP before both sides have acknowledged, or after FIN or RST
	stateTransient sessionState = iota
	stateEstablished
	stateOther
	states
)

func (s sessionState) String() string {
	return [states]string{"tcp transient", "tcp established", "udp idle"}[s]
}

// session is a flow that a permit+reflect rule permitted on one interface. The lock of its table
// guards it.
type session struct {
	key        sessionKey
	port       *portSessions
	owner      api.Direction // of the packet that created it
	flags      uint8         // TCP flags of that packet, for evaluating it again
	seen       [2]uint8      // TCP flags seen, by direction
	state      sessionState
	last       time.Time
	gen        uint64      // of the owner's binding at the last evaluation
	acl        *accessList // the rule that created it
	rule       uint32
	prev, next *session // in the list of its state, oldest first
}

// sessionTable holds the sessions of all interfaces. Sessions of one state are in a list by time of
// last use, so the expired ones are at the front.
type sessionTable struct {
	mu       sync.Mutex
	limit    int // maximum number of sessions
	quirks   bool
	checks   bool // with quirks: packets check whether their session is stale
	made     int  // size since the first ACL of an interface; 0 before
	adds     int  // number of sessions ever created
	count    int
	timeouts [states]time.Duration
	initial  sessionSettings // before the CLI changed them
	lists    [states]session // ring heads
}

// sessionSettings are the settings that the CLI changes.
type sessionSettings struct {
	limit    int
	timeouts [states]time.Duration
}

// portSessions holds the sessions of one interface.
type portSessions struct {
	sessions map[sessionKey]*session // guarded by the table's lock
	count    atomic.Int64            // len(sessions), to be read without the lock
	removed  bool                    // guarded by the table's lock
}

func newPortSessions() *portSessions {
	return &portSessions{sessions: make(map[sessionKey]*session)}
}

func newSessionTable(limit int, t Timeouts, quirks bool) *sessionTable {
	st := &sessionTable{limit: limit, quirks: quirks, timeouts: [states]time.Duration{
		stateTransient: 120 * time.Second, stateEstablished: 24 * time.Hour, stateOther: 600 * time.Second,
	}}
	for state, d := range [states]time.Duration{
		stateTransient: t.TCPTransient, stateEstablished: t.TCPEstablished, stateOther: t.Other,
	} {
		if d > 0 {
			st.timeouts[state] = d
		}
	}
	st.initial = sessionSettings{st.limit, st.timeouts}
	for i := range st.lists {
		st.lists[i].prev, st.lists[i].next = &st.lists[i], &st.lists[i]
	}
	return st
}

// sessionHit is the result of match.
type sessionHit struct {
	found, revoked bool
	owner          api.Direction
	acl            *accessList
	rule           uint32
}

// match finds the session of a packet and refreshes it. If the session was not evaluated against
// the current rules of its owner's direction, match evaluates it now, in whichever direction the
// packet goes. If it is no longer permitted, match removes it, and the packet must be checked
// against the rules.
func (st *sessionTable) match(p *port, dir api.Direction, t *tuple, now time.Time) (hit sessionHit) {
	if p.sessions.count.Load() == 0 {
		return hit
	}
	key, ok := st.key(dir, t)
	if !ok {
		return hit
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	s := p.sessions.sessions[key]
	if s == nil {
		return hit
	}
	if st.expired(s, now) || s.isOverAt(t) && !st.quirks {
		st.remove(s)
		return hit
	}
	if st.quirks {
		return st.matchQuirky(s, p, dir, t, now)
	}
	// A packet may still use an older view than the last evaluation of the session; it must not
	// revert the session to that view.
	if owner := &p.bindings[s.owner]; owner.gen > s.gen {
		first := s.key.tuple(s.owner, s.flags)
		if !owner.permits(&first) {
			st.remove(s)
			return sessionHit{revoked: true, owner: s.owner}
		}
		s.gen = owner.gen
	}
	st.touch(s, dir, t.Flags, now)
	return sessionHit{found: true, owner: s.owner, acl: s.acl, rule: s.rule}
}

// create adds the session of a packet; it returns false if the table is full.
func (st *sessionTable) create(p *port, dir api.Direction, t *tuple, a *accessList, rule uint32, now time.Time) bool {
	key, ok := st.key(dir, t)
	if !ok {
		return true
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if p.sessions.removed || p.sessions.sessions[key] != nil {
		return true
	}
	st.expire(now)
	if st.count >= st.places() && !st.evict() {
		return false
	}
	s := &session{
		key: key, port: p.sessions, owner: dir, flags: t.Flags, gen: p.bindings[dir].gen, acl: a, rule: rule,
	}
	s.prev, s.next = s, s
	p.sessions.sessions[key] = s
	p.sessions.count.Add(1)
	st.count++
	st.adds++
	st.touch(s, dir, t.Flags, now)
	return true
}

// touch records a packet of the session and moves the session to the end of the list of its state.
func (st *sessionTable) touch(s *session, dir api.Direction, flags uint8, now time.Time) {
	s.seen[dir] |= flags
	s.state = s.currentState()
	s.last = now
	s.unlink()
	head := &st.lists[s.state]
	s.prev, s.next = head.prev, head
	head.prev.next, head.prev = s, s
}

// TCP flags, and those that determine the state of a session.
const (
	flagFIN = 1 << 0
	flagSYN = 1 << 1
	flagRST = 1 << 2
	flagACK = 1 << 4

	stateFlags = flagFIN | flagSYN | flagRST | flagACK
)

// currentState is VPP's: a TCP session is established while both sides have sent SYN and ACK and
// none has sent FIN or RST.
func (s *session) currentState() sessionState {
	if s.key.proto != uint32(api.TCP) {
		return stateOther
	}
	const open = flagSYN | flagACK
	if s.seen[0]&stateFlags == open && s.seen[1]&stateFlags == open {
		return stateEstablished
	}
	return stateTransient
}

// isOverAt reports whether a packet opens a new connection over one that is closing. Such a packet
// is checked against the rules: if the other side sends it, it is not a reply.
func (s *session) isOverAt(t *tuple) bool {
	return t.Protocol == api.TCP && t.Flags&(flagSYN|flagACK) == flagSYN && (s.seen[0]|s.seen[1])&(flagFIN|flagRST) != 0
}

func (st *sessionTable) expired(s *session, now time.Time) bool {
	return now.Sub(s.last) >= st.timeouts[s.state]
}

// expire removes the expired sessions.
func (st *sessionTable) expire(now time.Time) {
	for i := range st.lists {
		head := &st.lists[i]
		for s := head.next; s != head && st.expired(s, now); s = head.next {
			st.remove(s)
		}
	}
}

// evict makes room: it removes the TCP session that has been longest without a handshake or, if
// there is none, the longest idle session of a protocol without a handshake. It never removes
// established TCP sessions.
func (st *sessionTable) evict() bool {
	if st.quirks {
		st.recycle()
		return false
	}
	for _, state := range []sessionState{stateTransient, stateOther} {
		if head := &st.lists[state]; head.next != head {
			st.remove(head.next)
			return true
		}
	}
	return false
}

func (st *sessionTable) remove(s *session) {
	s.unlink()
	delete(s.port.sessions, s.key)
	s.port.count.Add(-1)
	st.count--
}

func (s *session) unlink() { s.prev.next, s.next.prev = s.next, s.prev }

// removePort removes the sessions of a removed interface; packets that still see it create no new
// ones.
func (st *sessionTable) removePort(p *portSessions) {
	st.mu.Lock()
	defer st.mu.Unlock()
	p.removed = true
	for _, s := range p.sessions {
		st.remove(s)
	}
}

// reset removes all sessions and reverts the changes of the CLI.
func (st *sessionTable) reset() {
	st.clear()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.limit, st.timeouts, st.made, st.adds = st.initial.limit, st.initial.timeouts, 0, 0
}

// make creates the table if needed.
func (st *sessionTable) make() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.made == 0 {
		st.made = st.limit
	}
}

// fill returns how many sessions were ever created, how many exist, and the limit.
func (st *sessionTable) fill(now time.Time) (adds, count, limit int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.expire(now)
	return st.adds, st.count, st.limit
}

// clear removes all sessions.
func (st *sessionTable) clear() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range st.lists {
		for head := &st.lists[i]; head.next != head; {
			st.remove(head.next)
		}
	}
}
