package vswitch

import "github.com/sluice-net/sluice/internal/vswitch/internal/classify"

// port is the configuration of one interface. It is immutable: a change makes a copy. All copies
// share sessions.
type port struct {
	index    uint32
	name     string
	tag      string
	kind     string // the device type that VPP would show
	up       bool
	bindings [2]binding          // by direction
	etypes   [2][]uint16         // ethertype whitelists by direction; stored, not applied: there is no L2 path
	features map[string][]string // enabled nodes of other plugins, by arc; they do nothing
	sources  *macip              // nil: all
	sessions *portSessions
}

// binding is the ordered list of ACLs of one direction of an interface. A direction without ACLs is
// unrestricted.
type binding struct {
	acls []*accessList
	gen  uint64 // of the last change that affects sessions
}

// changed records a change; generation 0 does not affect sessions.
func (b *binding) changed(gen uint64) {
	if gen != 0 {
		b.gen = gen
	}
}

func (b *binding) indices() []uint32 {
	list := make([]uint32, len(b.acls))
	for i, a := range b.acls {
		list[i] = a.index
	}
	return list
}

// classify returns the ACL and the number of the deciding rule, or nil if there is none. It does
// not allocate.
func (b *binding) classify(t *tuple) (*accessList, uint32) {
	for _, a := range b.acls {
		if n := a.classifier.Lookup(t); n != classify.NoRule {
			return a, n
		}
	}
	return nil, classify.NoRule
}

// permits applies the rules of a direction to a tuple without counting.
func (b *binding) permits(t *tuple) bool {
	if len(b.acls) == 0 {
		return true
	}
	a, n := b.classify(t)
	return a != nil && a.action(n) != RuleDeny
}
