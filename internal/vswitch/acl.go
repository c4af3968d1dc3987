package vswitch

import (
	"slices"
	"sync/atomic"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
)

// accessList is one content of an ACL. It is immutable but for the counters, which
// therefore start at zero with each replacement, as in VPP.
type accessList struct {
	index      uint32
	tag        string
	rules      []Rule
	classifier *classifier
	hits       []atomic.Uint64 // by rule
}

// newACLIndex stands for "no index yet" in acl_add_replace and "all" in dumps.
const newACLIndex = ^uint32(0)

// maxACLs is how many ACLs one interface can have over both directions: the
// messages count them in one byte.
const maxACLs = 255

func newACL(tag string, rules []Rule) *accessList {
	return &accessList{tag: tag, rules: rules, classifier: newClassifier(rules), hits: make([]atomic.Uint64, len(rules))}
}

// putACL adds an ACL or replaces the content of an existing one in all places
// where it is bound, at once.
func (s *Switch) putACL(index uint32, a *accessList) (uint32, govpp.VPPApiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index == newACLIndex {
		a.index = s.acls.Next()
		s.acls.Put(a)
		return a.index, 0
	}
	old := s.acls.Get(index)
	if old == nil {
		return index, govpp.NO_SUCH_ENTRY
	}
	a.index = index
	s.acls.Set(index, a)
	gen := s.nextGeneration()
	for u := range s.uses[index] {
		p := *s.ports.Get(u.port)
		b := &p.bindings[u.dir]
		b.acls = slices.Clone(b.acls)
		b.acls[slices.Index(b.acls, old)] = a
		b.changed(gen)
		s.ports.Set(u.port, &p)
	}
	s.publish()
	return index, 0
}

// nextGeneration returns the generation of a change, or 0 when sessions are not
// to notice it.
func (s *Switch) nextGeneration() uint64 {
	if !s.reclassify {
		return 0
	}
	s.generation++
	return s.generation
}

func (b *binding) changed(gen uint64) {
	if gen != 0 {
		b.gen = gen
	}
}

// deleteACL deletes an ACL that is bound nowhere.
func (s *Switch) deleteACL(index uint32) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acls.Get(index) == nil {
		return govpp.NO_SUCH_ENTRY
	}
	if users := s.uses[index]; len(users) > 0 {
		for u := range users {
			if u.dir == api.Ingress {
				return govpp.ACL_IN_USE_INBOUND
			}
		}
		return govpp.ACL_IN_USE_OUTBOUND
	}
	delete(s.uses, index)
	s.acls.Remove(index)
	return 0
}

// setACLList binds the ACLs of both directions. Return values and partial effects
// are VPP's: outputs go first, and a duplicate within a direction gives 1 with
// the directions before it done.
func (s *Switch) setACLList(index uint32, inputs, outputs []uint32) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports.Get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	for _, i := range slices.Concat(inputs, outputs) {
		if s.acls.Get(i) == nil {
			return govpp.NO_SUCH_ENTRY
		}
	}
	const duplicate = govpp.VPPApiError(1)
	if hasDuplicate(outputs) {
		return duplicate
	}
	s.bind(index, api.Egress, outputs)
	if hasDuplicate(inputs) {
		return duplicate
	}
	s.bind(index, api.Ingress, inputs)
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
func (s *Switch) addBinding(index uint32, dir api.Direction, aclIndex uint32) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports.Get(index)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	if s.acls.Get(aclIndex) == nil {
		return govpp.NO_SUCH_ENTRY
	}
	list := p.bindings[dir].indices()
	if slices.Contains(list, aclIndex) {
		if dir == api.Ingress {
			return govpp.ACL_IN_USE_INBOUND
		}
		return govpp.ACL_IN_USE_OUTBOUND
	}
	if len(p.bindings[0].acls)+len(p.bindings[1].acls) >= maxACLs {
		return govpp.INVALID_VALUE
	}
	s.bind(index, dir, append(list, aclIndex))
	return 0
}

// removeBinding removes an ACL from a direction.
func (s *Switch) removeBinding(index uint32, dir api.Direction, aclIndex uint32) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports.Get(index)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	list := p.bindings[dir].indices()
	i := slices.Index(list, aclIndex)
	if i < 0 {
		return govpp.NO_SUCH_ENTRY
	}
	list[i] = list[len(list)-1] // as VPP does
	s.bind(index, dir, list[:len(list)-1])
	return 0
}

// bind sets the list of one direction; the ACLs exist and the lock is held. An
// equal list changes nothing; with quirks sessions take it for a change.
func (s *Switch) bind(index uint32, dir api.Direction, list []uint32) {
	old := s.ports.Get(index).bindings[dir].indices()
	if slices.Equal(old, list) && !s.quirks {
		return
	}
	if len(list) > 0 {
		s.sessions.make()
	}
	s.forgetOnBind(s.ports.Get(index), old, list)
	u := use{index, dir}
	for _, i := range old {
		delete(s.uses[i], u)
	}
	acls := make([]*accessList, len(list))
	for n, i := range list {
		acls[n] = s.acls.Get(i)
		if s.uses[i] == nil {
			s.uses[i] = make(map[use]struct{})
		}
		s.uses[i][u] = struct{}{}
	}
	gen := s.nextGeneration()
	s.changePort(index, func(p *port) {
		p.bindings[dir].acls = acls
		p.bindings[dir].changed(gen)
	})
}

func (b *binding) indices() []uint32 {
	list := make([]uint32, len(b.acls))
	for i, a := range b.acls {
		list[i] = a.index
	}
	return list
}

// classify returns the ACL and the number of the rule that decides, nil when none
// does. It does not allocate.
func (b *binding) classify(t *tuple) (*accessList, uint32) {
	for _, a := range b.acls {
		if n := a.classifier.lookup(t); n != noRule {
			return a, n
		}
	}
	return nil, noRule
}

// permits says what the rules of a direction do with a tuple, without counting.
func (b *binding) permits(t *tuple) bool {
	if len(b.acls) == 0 {
		return true
	}
	a, n := b.classify(t)
	return a != nil && a.rules[n].Action != RuleDeny
}
