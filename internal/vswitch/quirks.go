package vswitch

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/api"
)

// Differences of VPP that Options.Quirks emulates. All of them were observed on 25.10 or read in
// its source; tests/dataplane/vpp runs the same scenarios on both.
//
//   - A session is stale if rules of its owner's direction changed since, whatever
//     they permit now. Only packets of that direction detect this. The packet that does is
//     checked against the rules, even if it is not the first of its flow. Packets of the
//     other direction continue to pass until then.
//   - Stale sessions are detected only while reclassify-sessions is on; it is initially
//     off. While it is off, a change of an interface's set of ACLs removes
//     all its sessions; a change of their order or content has no effect.
//   - Binding the same lists again makes sessions stale.
//   - A session exists as soon as one direction permits its packet, even if the
//     packet is dropped on output.
//   - A fragment that is not the first has a session like any packet, with the ports 0.
//   - A SYN of either side passes a session that is closing.
//   - A direction without ACLs does not use sessions: they are not refreshed.
//   - A full table creates no session, and one place always stays free. A TCP session that
//     has not been established makes room for the next packet; UDP sessions never do.
//   - The table is created with the first ACL of an interface. A limit that is raised later
//     promises places that do not exist; VPP crashes when a session needs one.
//   - A rule with an unknown action permits.
//   - SCTP has no ports (Options.LikeVPP).

// setReclassify sets whether changes make sessions stale; the lock is held or not needed yet.
func (t *aclTable) setReclassify(on bool) {
	t.reclassify = on
	t.sessions.mu.Lock()
	defer t.sessions.mu.Unlock()
	t.sessions.checks = on
}

// forgetOnBind removes the sessions of an interface whose set of ACLs changes while stale sessions
// are not detected; the lock is held.
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

// matchQuirky implements match with quirks for a session that has not expired; the lock is held.
func (st *sessionTable) matchQuirky(s *session, p *port, dir api.Direction, t *tuple, now time.Time) sessionHit {
	if st.checks && dir == s.owner && p.bindings[dir].gen != s.gen {
		st.remove(s)
		return sessionHit{revoked: true, owner: s.owner}
	}
	st.touch(s, dir, t.Flags, now)
	return sessionHit{found: true, owner: s.owner, acl: s.acl, rule: s.rule}
}

// places returns the maximum number of sessions; the lock is held.
func (st *sessionTable) places() int {
	if st.quirks {
		return min(st.limit, st.made) - 1
	}
	return st.limit
}

// hasPlace reports whether the table has a place with a number; without quirks the limit is the
// number of places.
func (st *sessionTable) hasPlace(number uint32) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.made > 0 && (!st.quirks || int64(number) < int64(st.made))
}

// recycle ends the TCP session that has been longest without a handshake; the lock is held.
func (st *sessionTable) recycle() {
	if head := &st.lists[stateTransient]; head.next != head {
		st.remove(head.next)
	}
}

// key returns the key of a packet, or false if packets like it have no session.
func (st *sessionTable) key(dir api.Direction, t *tuple) (sessionKey, bool) {
	if st.quirks && t.Fragment {
		return orient(dir, t, 0, 0), true
	}
	return newSessionKey(dir, t)
}
