package processor

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// countedSet is a set whose members are counted: those of the own node, which local
// pods tell, and those of selected nodes, two of which may have one address.
type countedSet struct {
	refs  map[netip.Addr]int
	told  map[netip.Addr]struct{} // the sink knows these
	moved []netip.Addr            // counted since the last take
}

func newCountedSet() countedSet {
	return countedSet{refs: map[netip.Addr]int{}, told: map[netip.Addr]struct{}{}}
}

// change counts d more objects that have an address.
func (s *countedSet) change(a netip.Addr, d int) {
	s.refs[a] += d
	if s.refs[a] <= 0 {
		delete(s.refs, a)
	}
	s.moved = append(s.moved, a)
}

// changeAll counts an object that had some addresses and has others now.
func (s *countedSet) changeAll(old, now []netip.Addr) {
	if slices.Equal(old, now) {
		return
	}
	for _, a := range now {
		s.change(a, +1)
	}
	for _, a := range old {
		s.change(a, -1)
	}
}

// take returns what became different since the last take, and takes it for told.
func (s *countedSet) take() (added, removed []netip.Prefix) {
	slices.SortFunc(s.moved, netip.Addr.Compare)
	for _, a := range slices.Compact(s.moved) {
		_, was := s.told[a]
		switch is := s.refs[a] > 0; {
		case is && !was:
			s.told[a] = struct{}{}
			added = append(added, netip.PrefixFrom(a, a.BitLen()))
		case was && !is:
			delete(s.told, a)
			removed = append(removed, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	s.moved = s.moved[:0]
	return added, removed
}

// has says whether the sink knows an address.
func (s *countedSet) has(a netip.Addr) bool {
	_, ok := s.told[a]
	return ok
}

// members returns what the sink knows, sorted.
func (s *countedSet) members() []netip.Addr {
	return slices.SortedFunc(maps.Keys(s.told), netip.Addr.Compare)
}

// enterNodes fills the set of a selector of nodes, which is new.
func (p *Processor) enterNodes(s *selector) {
	counted := newCountedSet()
	set := s.sets[0]
	set.nodes = &counted
	p.touch(set)
	for n := range p.state.MatchNodes(s.pods) {
		set.changeNode(nil, n.Addresses)
	}
}

// leaveNodes empties the set of a selector of nodes, for good.
func (p *Processor) leaveNodes(s *selector) {
	set := s.sets[0]
	set.dead = true
	p.touch(set)
	for n := range p.state.MatchNodes(s.pods) {
		set.changeNode(n.Addresses, nil)
	}
	s.sets = nil
}

// changeNode counts the addresses of a node, unless the set has no ID.
func (s *addrSet) changeNode(old, now []netip.Addr) {
	if !s.refused {
		s.nodes.changeAll(old, now)
	}
}

// NodeChanged counts the addresses of a node in the sets of the selectors that select
// it, and those of the own node in its set.
func (p *Processor) NodeChanged(old, now *api.Node) {
	p.hostChanged(old, now)
	sc := p.scopes.byKey[nodeScope]
	if sc == nil {
		return
	}
	if old != nil {
		p.countNode(sc, old, old.Addresses, nil)
	}
	if now != nil {
		p.countNode(sc, now, nil, now.Addresses)
	}
}

func (p *Processor) countNode(sc *scope, n *api.Node, old, now []netip.Addr) {
	for s := range sc.plain.Matching(n.Labels) {
		s.sets[0].changeNode(old, now)
		p.touch(s.sets[0])
	}
}
