package vswitch

import (
	"slices"
	"sync/atomic"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// accessList is one version of an ACL. It is immutable except for the counters, which therefore
// restart at zero with each replacement, as in VPP.
type accessList struct {
	index uint32
	tag   string
	*content
	hits []atomic.Uint64 // by rule
}

// newACLIndex means "no index yet" in acl_add_replace and "all" in dumps.
const newACLIndex = ^uint32(0)

// maxACLs is the maximum number of ACLs of one interface over both directions: the messages count
// them in one byte.
const maxACLs = 255

func newACL(tag string, c *content) *accessList {
	return &accessList{tag: tag, content: c, hits: make([]atomic.Uint64, len(c.rules))}
}

// aclTable holds the ACLs of the ACL plugin.
type aclTable struct {
	ports      *portTable
	sessions   *sessionTable
	quirks     bool
	hashLookup atomic.Bool // a setting without effect
	changes    atomic.Uint64

	// The lock of ports guards the fields below.
	lists      pool.Pool[accessList]
	reclassify bool // changes make sessions stale, so that they are evaluated again
}

func newACLTable(ports *portTable, sessions *sessionTable, quirks bool) *aclTable {
	t := &aclTable{ports: ports, sessions: sessions, quirks: quirks}
	t.resetACLs()
	return t
}

// resetACLs removes all ACLs and resets the settings; the lock is held or not needed yet.
func (t *aclTable) resetACLs() {
	t.lists = pool.Pool[accessList]{}
	t.hashLookup.Store(true)
	t.setReclassify(!t.quirks)
}

// addReplace validates a request and applies it.
func (t *aclTable) addReplace(m *acl.ACLAddReplace) (uint32, govpp.VPPApiError) {
	if len(m.Tag) > wire.MaxName { // no NUL within the field
		return m.ACLIndex, govpp.INVALID_VALUE
	}
	c, rv := contentFromWire(m.R, t.quirks)
	if rv != 0 {
		return m.ACLIndex, rv
	}
	if m.ACLIndex != newACLIndex && t.get(m.ACLIndex) == nil {
		return m.ACLIndex, govpp.NO_SUCH_ENTRY
	}
	return t.putACL(m.ACLIndex, newACL(m.Tag, c))
}

// putACL adds an ACL, or replaces an existing one atomically at all its bindings.
func (t *aclTable) putACL(index uint32, a *accessList) (uint32, govpp.VPPApiError) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	if index == newACLIndex {
		a.index = t.lists.Next()
		t.lists.Put(a)
		return a.index, 0
	}
	old := t.lists.Get(index)
	if old == nil {
		return index, govpp.NO_SUCH_ENTRY
	}
	a.index = index
	t.lists.Set(index, a)
	t.ports.replace(old, a, t.nextGeneration())
	return index, 0
}

// nextGeneration returns the generation of a change, or 0 if sessions must ignore the change.
func (t *aclTable) nextGeneration() uint64 {
	if !t.reclassify {
		return 0
	}
	t.ports.generation++
	return t.ports.generation
}

// deleteACL deletes an ACL without bindings.
func (t *aclTable) deleteACL(index uint32) govpp.VPPApiError {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	if t.lists.Get(index) == nil {
		return govpp.NO_SUCH_ENTRY
	}
	if users := t.ports.uses[index]; len(users) > 0 {
		for u := range users {
			if u.dir == api.Ingress {
				return govpp.ACL_IN_USE_INBOUND
			}
		}
		return govpp.ACL_IN_USE_OUTBOUND
	}
	delete(t.ports.uses, index)
	t.lists.Remove(index)
	return 0
}

// setList binds the ACLs of both directions. Return values and partial effects are VPP's: outputs
// are set first, and a duplicate within a direction returns 1 after the earlier direction was
// changed.
func (t *aclTable) setList(index uint32, inputs, outputs []uint32) govpp.VPPApiError {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	if t.ports.table.Get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	for _, i := range slices.Concat(inputs, outputs) {
		if t.lists.Get(i) == nil {
			return govpp.NO_SUCH_ENTRY
		}
	}
	const duplicate = govpp.VPPApiError(1)
	if hasDuplicate(outputs) {
		return duplicate
	}
	t.bind(use{index, api.Egress}, outputs)
	if hasDuplicate(inputs) {
		return duplicate
	}
	t.bind(use{index, api.Ingress}, inputs)
	return 0
}

func hasDuplicate(list []uint32) bool {
	seen := make(map[uint32]bool, len(list))
	for _, i := range list {
		if seen[i] {
			return true
		}
		seen[i] = true
	}
	return false
}

// addBinding appends an ACL to a direction.
func (t *aclTable) addBinding(u use, aclIndex uint32) govpp.VPPApiError {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	p := t.ports.table.Get(u.port)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	if t.lists.Get(aclIndex) == nil {
		return govpp.NO_SUCH_ENTRY
	}
	list := p.bindings[u.dir].indices()
	if slices.Contains(list, aclIndex) {
		if u.dir == api.Ingress {
			return govpp.ACL_IN_USE_INBOUND
		}
		return govpp.ACL_IN_USE_OUTBOUND
	}
	if len(p.bindings[0].acls)+len(p.bindings[1].acls) >= maxACLs {
		return govpp.INVALID_VALUE
	}
	t.bind(u, append(list, aclIndex))
	return 0
}

// removeBinding removes an ACL from a direction.
func (t *aclTable) removeBinding(u use, aclIndex uint32) govpp.VPPApiError {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	p := t.ports.table.Get(u.port)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	list := p.bindings[u.dir].indices()
	i := slices.Index(list, aclIndex)
	if i < 0 {
		return govpp.NO_SUCH_ENTRY
	}
	list[i] = list[len(list)-1] // as VPP does
	t.bind(u, list[:len(list)-1])
	return 0
}

// bind sets the list of one direction; the ACLs exist and the lock is held. An equal list changes
// nothing; with quirks it makes sessions stale.
func (t *aclTable) bind(u use, list []uint32) {
	p := t.ports.table.Get(u.port)
	old := p.bindings[u.dir].indices()
	if slices.Equal(old, list) && !t.quirks {
		return
	}
	if len(list) > 0 {
		t.sessions.make()
	}
	t.forgetOnBind(p, old, list)
	acls := make([]*accessList, len(list))
	for n, i := range list {
		acls[n] = t.lists.Get(i)
	}
	t.ports.bind(u, acls, t.nextGeneration())
}

// get returns an ACL, or nil if it does not exist.
func (t *aclTable) get(index uint32) *accessList {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	return t.lists.Get(index)
}

// matching returns one ACL or, for newACLIndex, all of them.
func (t *aclTable) matching(index uint32) []*accessList {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	if index != newACLIndex {
		if a := t.lists.Get(index); a != nil {
			return []*accessList{a}
		}
		return nil
	}
	var list []*accessList
	for _, a := range t.lists.All() {
		list = append(list, a)
	}
	return list
}
