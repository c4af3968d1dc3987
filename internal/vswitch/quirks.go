package vswitch

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/api"
)

// What VPP does otherwise, by Options.Quirks. All of it was observed on 25.10 or is
// read in its source; tests/vpp has the same scenarios on both.
//
//   - A session is stale when rules of its owner's direction changed since, whatever
//     they say now, and only packets of that direction find out; the packet that does is
//     judged by the rules, also when it is not the first of its flow. Packets of the
//     other direction go on passing until then.
//   - Sessions are looked at only while reclassify-sessions is on, which it is not at
//     the start. While it is off, a change of which ACLs an interface has makes it
//     forget all its sessions; a change of their order or content does nothing.
//   - Binding the lists that are bound already makes sessions stale.
//   - A session exists as soon as one direction lets its packet through, also when the
//     packet is dropped on its way out.
//   - A fragment that is not the first has a session like any packet, with the ports 0.
//   - A SYN of either side passes a session that is closing.
//   - A direction without ACLs does not look at sessions: they grow old meanwhile.
//   - A table that is full takes no session, and one place always stays free. A TCP session that
//     has not been established makes room for the next packet; UDP never does.
//   - The table is made with the first ACL of an interface. A limit that is raised later asks for
//     places that there are not; VPP ends when a session needs one.
//   - A rule with an unknown action permits.
//   - SCTP has no ports (Options.LikeVPP).

// setReclassify reports whether changes make sessions be evaluated again; the lock is held
// or not needed yet.
func (t *aclTable) setReclassify(on bool) {
	t.reclassify = on
	t.sessions.mu.Lock()
	defer t.sessions.mu.Unlock()
	t.sessions.checks = on
}

// forgetOnBind forgets the sessions of an interface whose ACLs become others while
// sessions are not evaluated again; the lock is held.
func (t *aclTable) forgetOnBind(p *port, old, list []uint32) {
	if t.quirks && !t.reclassify && !maps.Equal(setOf(old), setOf(list)) {
		t.sessions.clearPort(p.sessions)
	}
}

func setOf(list []uint32) map[uint32]bool {
	set := make(map[uint32]bool, len(list))
	for _, i := range list {
		set[i] = true
	}
	return set
}

func (st *sessionTable) clearPort(p *portSessions) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, s := range p.sessions {
		st.remove(s)
	}
}

// matchQuirky is what match does with a session that is not expired; the lock is held.
func (st *sessionTable) matchQuirky(s *session, p *port, dir api.Direction, t *tuple, now time.Time) sessionHit {
	if st.checks && dir == s.owner && p.bindings[dir].gen != s.gen {
		st.remove(s)
		return sessionHit{revoked: true, owner: s.owner}
	}
	st.touch(s, dir, t.Flags, now)
	return sessionHit{found: true, owner: s.owner, acl: s.acl, rule: s.rule}
}

// places returns how many sessions there may be; the lock is held.
func (st *sessionTable) places() int {
	if st.quirks {
		return min(st.limit, st.made) - 1
	}
	return st.limit
}

// hasPlace reports whether the table has a place of a number; without quirks it has as many as the
// limit says.
func (st *sessionTable) hasPlace(number uint32) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.made > 0 && (!st.quirks || int64(number) < int64(st.made))
}

// recycle ends the TCP session that is longest without a handshake; the lock is held.
func (st *sessionTable) recycle() {
	if head := &st.lists[stateTransient]; head.next != head {
		st.remove(head.next)
	}
}

// key returns the key of a packet, false when it has no session.
func (st *sessionTable) key(dir api.Direction, t *tuple) (sessionKey, bool) {
	if st.quirks && t.Fragment {
		return orient(dir, t, 0, 0), true
	}
	return newSessionKey(dir, t)
}
