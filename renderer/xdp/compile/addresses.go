package compile

import (
	"net/netip"
)

// addresses maps addresses of both families to their classes. Records hold its roots.
type addresses struct {
	arena        *arena
	v4, v6       *trie
	root4, root6 uint32 // line of the IPv4 cells; index of the word with the first IPv6 node
}

func newAddresses(a *arena, c *classes) *addresses {
	m := &addresses{arena: a, v4: newTrie(a, c, digits4), v6: newTrie(a, c, digits6)}
	m.root4, m.root6 = a.allocate(rootLines), a.allocate(1)*LineWords
	return m
}

// change changes the atoms of a prefix.
func (m *addresses) change(p netip.Prefix, f func(own) own) {
	t := m.v6
	if p.Addr().Is4() {
		t = m.v4
	}
	t.change(p, f)
}

// changed reports whether the class of an address may change in the next build.
func (m *addresses) changed() bool {
	return m.v4.top.dirty || m.v6.top.dirty || !m.v4.top.built
}

// move copies the roots to new lines, for the next records.
func (m *addresses) move() {
	a := m.arena
	old := m.root4
	m.root4 = a.allocate(rootLines)
	for i := range uint32(rootLines) {
		*a.line(m.root4 + i) = *a.line(old + i)
	}
	a.drop(old, rootLines)
	first := a.word(m.root6)
	a.drop(m.root6/LineWords, 1)
	m.root6 = a.allocate(1) * LineWords
	a.setWord(m.root6, first)
}

// build writes the classes of addresses. It returns the changed words of the roots, which packets
// read.
func (m *addresses) build() (stores []Store) {
	store := func(word, value uint32) { stores = append(stores, Store{word, value}) }
	m.v4.roots(m.root4, store)
	if first := m.v6.lead(&m.v6.top, 0, 0) &^ nextNode; first != m.arena.word(m.root6) {
		m.arena.setWord(m.root6, first)
		store(m.root6, first)
	}
	return stores
}
