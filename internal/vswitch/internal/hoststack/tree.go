package hoststack

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
)

// Actions of session rules. Any other value is the index of an application that takes the
// connection.
const (
	None  = ^uint32(0)     // continues as if there were no rule
	Drop  = ^uint32(0) - 1 // refuses the connection
	Allow = ^uint32(0) - 2 // lets it through
)

// sessionMatch is the match of a session rule: the local and the remote endpoint, seen from the
// application. Port 0 is any port. Ports are numbers as the vswitch stores them.
type sessionMatch struct {
	lcl, rmt         netip.Prefix
	lclPort, rmtPort uint16
}

// endpoints is a lookup key.
type endpoints struct {
	lcl, rmt         netip.Addr
	lclPort, rmtPort uint16
}

// base returns the key by which VPP finds the place of a rule with the match: its addresses without
// their lengths, and its ports, of which 0 is none.
func (m sessionMatch) base() endpoints {
	return endpoints{m.lcl.Addr(), m.rmt.Addr(), m.lclPort, m.rmtPort}
}

func (m sessionMatch) matches(k endpoints) bool {
	return (m.lclPort == 0 || m.lclPort == k.lclPort) && (m.rmtPort == 0 || m.rmtPort == k.rmtPort) &&
		m.lcl.Contains(k.lcl) && m.rmt.Contains(k.rmt)
}

// rank is the sort key of the children of a rule: the last remote address, the last local address,
// then ports, with any last.
type rank struct {
	rmt, lcl         netip.Addr
	rmtPort, lclPort uint16
}

func (m sessionMatch) rank() rank {
	return rank{lastAddr(m.rmt), lastAddr(m.lcl), m.rmtPort - 1, m.lclPort - 1}
}

func (r rank) compare(o rank) int {
	return cmp.Or(r.rmt.Compare(o.rmt), r.lcl.Compare(o.lcl), cmp.Compare(r.rmtPort, o.rmtPort), cmp.Compare(r.lclPort, o.lclPort))
}

// lastAddr returns the highest address of a prefix as VPP computes it: for all IPv4 addresses that
// is the lowest, and for a long IPv6 prefix the first half is missing.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	switch {
	case len(b) == 4 && p.Bits() == 0:
		return p.Addr()
	case len(b) == 16 && p.Bits() > 64:
		clear(b[:8])
	}
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ruleTree holds the session rules of one table, transport and family. It follows VPP's tree
// (vnet/session/mma_template.c) step by step. The tree finds the place of a rule only by the
// address of its match. So, depending on the order of additions, a rule may become the child of one
// that does not contain it, or be hidden by it.
type ruleTree struct {
	rules pool.Pool[sessionNode] // the root has the index 0
}

type sessionNode struct {
	match    sessionMatch
	rank     rank
	action   uint32
	children []uint32
}

// newRuleTree returns a tree that has only its root, which matches everything.
func newRuleTree(family netip.Addr) *ruleTree {
	all := netip.PrefixFrom(family, 0)
	t := &ruleTree{}
	t.rules.Put(&sessionNode{match: sessionMatch{lcl: all, rmt: all}, action: None})
	return t
}

// lookup returns the index of the rule that decides, and its action: of the first child that
// matches and has an action, or of the rule itself.
func (t *ruleTree) lookup(at uint32, k endpoints) (index, action uint32) {
	n := t.rules.Get(at)
	if !n.match.matches(k) {
		return at, None
	}
	for _, c := range n.children {
		if i, a := t.lookup(c, k); a != None {
			return i, a
		}
	}
	return at, n.action
}

// place returns the rule to which a key leads, whatever its action.
func (t *ruleTree) place(k endpoints) uint32 {
	at := uint32(0)
	for {
		children := t.rules.Get(at).children
		i := slices.IndexFunc(children, func(c uint32) bool { return t.rules.Get(c).match.matches(k) })
		if i < 0 {
			return at
		}
		at = children[i]
	}
}

// add adds a rule and returns its index. If a rule with the same match has the place, it gets the
// new action.
func (t *ruleTree) add(m sessionMatch, action uint32) (index uint32, added bool) {
	at := t.place(m.base())
	parent := t.rules.Get(at)
	if parent.match == m {
		parent.action = action
		return at, false
	}
	index = t.rules.Next()
	n := &sessionNode{match: m, rank: m.rank(), action: action}
	t.rules.Put(n)
	children := make([]uint32, 0, len(parent.children)+1)
	placed := false
	for _, c := range parent.children {
		child := t.rules.Get(c)
		within := m.matches(child.match.base())
		if !placed && (within || n.rank.compare(child.rank) < 0) {
			children, placed = append(children, index), true
		}
		if within {
			n.children = append(n.children, c)
		} else {
			children = append(children, c)
		}
	}
	if !placed {
		children = append(children, index)
	}
	parent.children = children
	return index, true
}

// remove removes a rule; its children take its place. The root only loses its action.
func (t *ruleTree) remove(m sessionMatch) {
	if root := t.rules.Get(0); root.match == m {
		root.action = None
		return
	}
	t.removeBelow(0, m)
}

func (t *ruleTree) removeBelow(at uint32, m sessionMatch) bool {
	parent := t.rules.Get(at)
	for i, c := range parent.children {
		child := t.rules.Get(c)
		if child.match == m {
			parent.children = slices.Concat(parent.children[:i], child.children, parent.children[i+1:])
			t.rules.Remove(c)
			return true
		}
		if child.match.matches(m.base()) && t.removeBelow(c, m) {
			return true
		}
	}
	return false
}
