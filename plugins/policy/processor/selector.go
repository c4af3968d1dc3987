package processor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// selectorKey identifies a selector: equal keys mean equal addresses.
type selectorKey struct {
	scope scopeKey
	pods  string       // text of the pod part
	port  api.PortName // zero: no named port
	block string       // text of the block that addresses must be in; empty: any
	probe bool         // asks only whether there are such pods, see probeFor
}

// selector is an active selector. A plain one is one address set. One with a
// named port is a family: one set per number that the name stands for in the
// groups that match. It is active as long as resolutions of policies use it.
type selector struct {
	key   selectorKey
	scope *scope
	pods  *api.Selector
	port  api.PortName
	block *api.IPBlock
	sets  []*addrSet           // sorted by number
	users map[api.PolicyID]int // resolutions that use it
	moved bool                 // is in Processor.families
}

func (s *selector) isFamily() bool { return s.port != (api.PortName{}) }

// query finds the groups of a selector.
func (s *selector) query() api.GroupQuery {
	return api.GroupQuery{Namespace: s.key.scope.namespace, Namespaces: s.scope.sel, Pods: s.pods, Port: s.port}
}

// String says in the style of kubectl which pods the selector selects.
func (s *selector) String() string { return s.key.String() }

// String says in the style of kubectl which pods are selected.
func (k selectorKey) String() string {
	var parts []string
	if k.scope.nodes {
		return "nodes " + cmp.Or(k.pods, "of any labels")
	}
	switch {
	case k.scope.namespace != "":
		parts = append(parts, "namespace "+k.scope.namespace)
	case k.scope.selected && k.scope.text == "":
		parts = append(parts, "all namespaces")
	case k.scope.selected:
		parts = append(parts, "namespaces "+k.scope.text)
	default:
		parts = append(parts, "whole cluster")
	}
	if k.pods == "" {
		parts = append(parts, "all pods")
	} else {
		parts = append(parts, "pods "+k.pods)
	}
	if k.block != "" {
		parts = append(parts, "within "+k.block)
	}
	return strings.Join(parts, ", ")
}

// canonical returns the text that a set's ID is derived from. Every part is
// quoted or a number, so different sets have different texts.
func (s *selector) canonical(number uint16) string {
	if s.key.scope.nodes {
		return fmt.Sprintf("v1 nodes=%q", s.key.pods)
	}
	return fmt.Sprintf("v1 ns=%q selected=%t/%q pods=%q port=%d/%q/%d block=%q",
		s.key.scope.namespace, s.key.scope.selected, s.key.scope.text, s.key.pods,
		s.port.Protocol, s.port.Name, number, s.key.block)
}

// selectorFor returns an active selector, making it active when nobody uses it
// yet: it finds its groups and their addresses, and is found by groups from then
// on. It must only be called in Flush, when the cache does not change.
func (p *Processor) selectorFor(key selectorKey, namespaces, pods *api.Selector, block *api.IPBlock) *selector {
	if s, ok := p.selectors[key]; ok {
		return s
	}
	s := &selector{
		key: key, scope: p.scopes.scopeFor(key.scope, namespaces), pods: pods, port: key.port, block: block,
		users: map[api.PolicyID]int{},
	}
	p.selectors[key] = s
	s.scope.add(s)
	s.moved = true // numbers found here are no news
	switch {
	case key.probe:
		s.sets = []*addrSet{{sel: s, refused: true}}
	case !s.isFamily():
		s.sets = []*addrSet{p.makeSet(s, 0)}
	}
	if key.scope.nodes {
		p.enterNodes(s)
		return s
	}
	for id, g := range p.state.MatchGroups(s.query()) {
		for _, set := range p.setsFor(s, g) {
			if set.groups == 0 && !set.refused {
				set.members = p.newMembers()
			}
			p.enter(set, id)
			set.collect(p.addresses(id))
		}
	}
	for _, set := range s.sets {
		if !key.probe { // which tells the sink nothing
			set.fresh = true
			p.touch(set)
		}
	}
	s.moved = false
	return s
}

// setsFor returns the sets of a selector that a matching group is in, making
// those of numbers that are new to a family. The result is valid until the next
// call.
func (p *Processor) setsFor(s *selector, g *api.Group) []*addrSet {
	if !s.isFamily() {
		return s.sets
	}
	p.setBuf = p.setBuf[:0]
	for _, port := range g.NamedPorts {
		if port.PortName != s.port {
			continue
		}
		i, ok := s.find(port.Number)
		if !ok {
			s.sets = slices.Insert(s.sets, i, p.makeSet(s, port.Number))
			p.moved(s)
		}
		p.setBuf = append(p.setBuf, s.sets[i])
	}
	return p.setBuf
}

func (s *selector) find(number uint16) (int, bool) {
	return slices.BinarySearchFunc(s.sets, number, func(a *addrSet, n uint16) int { return cmp.Compare(a.number, n) })
}

// moved notes that a family may have other numbers than when it was resolved.
func (p *Processor) moved(s *selector) {
	if s.isFamily() && !s.moved {
		s.moved = true
		p.families = append(p.families, s)
	}
}

// link enters a group into the sets of a selector, with its addresses.
func (p *Processor) link(s *selector, id api.GroupID) {
	for _, set := range p.setsFor(s, p.groups[id].def) {
		p.enter(set, id)
		for _, a := range p.addresses(id) {
			p.record(set, a, +1)
		}
	}
}

// unlink takes a group and its addresses out of the sets of a selector.
func (p *Processor) unlink(s *selector, id api.GroupID) {
	for _, set := range s.sets {
		if !p.exit(set, id) {
			continue
		}
		for _, a := range p.addresses(id) {
			p.record(set, a, -1)
		}
	}
}

// release takes back one use of a selector.
func (p *Processor) release(s *selector, user api.PolicyID) {
	if s.users[user]--; s.users[user] <= 0 {
		delete(s.users, user)
	}
	if len(s.users) == 0 {
		p.idle = append(p.idle, s)
	}
}

// settleFamilies drops the numbers that no group stands for any more and marks
// the policies of every family whose numbers changed.
func (p *Processor) settleFamilies() {
	for _, s := range p.families {
		s.moved = false
		s.sets = slices.DeleteFunc(s.sets, func(set *addrSet) bool {
			if set.groups > 0 {
				return false
			}
			set.dead = true
			p.touch(set)
			return true
		})
		for id := range s.users {
			if st := p.policies[id]; st != nil {
				st.stale = true
				p.markSelected(st.spec)
			}
		}
	}
	p.families = p.families[:0]
}

// deactivate forgets a selector that nobody uses; its sets lose all members. What
// the sink has is what there was before this update, so the journal is settled
// before the links that it is settled by are cut.
func (p *Processor) deactivate(s *selector) {
	delete(p.selectors, s.key)
	s.scope.remove(s)
	p.scopes.tidy(s.scope)
	if s.key.scope.nodes {
		p.leaveNodes(s)
		return
	}
	s.moved = true // nobody wants to hear of its numbers
	for _, set := range s.sets {
		p.settle(set)
		if !s.key.probe {
			set.members = p.newMembers()
		}
	}
	for id := range p.state.MatchGroups(s.query()) {
		for _, set := range s.sets {
			if p.exit(set, id) {
				set.collect(p.addresses(id))
			}
		}
	}
	for _, set := range s.sets {
		if !s.key.probe {
			set.dead = true
			p.touch(set)
		}
	}
	s.sets = nil
}
