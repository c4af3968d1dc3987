package hoststack

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ruleTable are the session rules of one transport: of both families of a namespace, or of
// one routing table. Tags are those of the table, whatever the family.
type ruleTable struct {
	trees  [2]*ruleTree      // IPv4, IPv6
	byTag  map[string]uint32 // index of the rule, of either family
	tagsOf map[taggedRule]string
}

type taggedRule struct {
	index uint32
	v6    int
}

// ruleGroup is what VPP keeps per session table: rules by transport.
type ruleGroup struct {
	local bool
	v6    int // family of a routing table
	// namespaces are those that the table is of, in the order in which they came.
	namespaces []uint32
	tables     map[api.Protocol]*ruleTable // nil before the first rule
}

func newRuleTable() *ruleTable {
	return &ruleTable{
		trees: [2]*ruleTree{newRuleTree(netip.IPv4Unspecified()), newRuleTree(netip.IPv6Unspecified())},
		byTag: make(map[string]uint32), tagsOf: make(map[taggedRule]string),
	}
}

// init makes the tables; the first rule does it.
func (g *ruleGroup) init() {
	if g.tables == nil {
		g.tables = map[api.Protocol]*ruleTable{api.TCP: newRuleTable(), api.UDP: newRuleTable()}
	}
}

// put adds a rule, or gives another action and tag to the one with its match. It fails when
// the tag is taken.
func (t *ruleTable) put(m sessionMatch, action uint32, tag string, quirks bool) bool {
	if _, taken := t.byTag[tag]; taken && tag != "" {
		return false
	}
	v6 := familyOf(m.rmt)
	index, added := t.trees[v6].add(m, action)
	if !added {
		index = t.trees[v6].place(m.base())
		if old, ok := t.tagsOf[taggedRule{index, v6}]; ok {
			t.untag(old, index, v6, quirks)
		}
	}
	if tag != "" {
		t.byTag[tag], t.tagsOf[taggedRule{index, v6}] = index, tag
	}
	return true
}

// untag forgets the tag of a rule that gets another one. VPP takes every such rule for one of
// IPv4: an IPv6 rule's old tag stays taken, or the tag of the IPv4 rule with its index goes.
func (t *ruleTable) untag(tag string, index uint32, v6 int, quirks bool) {
	if quirks && v6 == 1 {
		if _, ok := t.tagsOf[taggedRule{index, 0}]; !ok {
			return
		}
		v6 = 0
	}
	delete(t.byTag, tag)
	delete(t.tagsOf, taggedRule{index, v6})
}

// del removes the rule with a tag; if there is none, that with the match. The tag of a rule
// that goes by its match stays taken. A tag of the other family names a rule of this one.
func (t *ruleTable) del(m sessionMatch, tag string) {
	v6 := familyOf(m.rmt)
	index, ok := t.byTag[tag]
	if tag == "" || !ok {
		t.trees[v6].remove(m)
		return
	}
	if n := t.trees[v6].rules.Get(index); n != nil { // VPP looks at memory that is not there
		t.trees[v6].remove(n.match)
	}
	if _, ok := t.tagsOf[taggedRule{index, v6}]; ok {
		delete(t.byTag, tag)
		delete(t.tagsOf, taggedRule{index, v6})
	}
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}
