package hoststack

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ruleTable holds the session rules of one transport: of both families of a namespace, or of one
// routing table. Tags belong to the table, regardless of the family.
type ruleTable struct {
	trees  [2]*ruleTree      // IPv4, IPv6
	byTag  map[string]uint32 // index of the rule, of either family
	tagsOf map[taggedRule]string
}

type taggedRule struct {
	index uint32
	v6    int
}

// ruleGroup is the content of one of VPP's session tables: rules by transport.
type ruleGroup struct {
	local bool
	v6    int // family of a routing table
	// namespaces lists the namespaces of the table, in the order in which they were added.
	namespaces []uint32
	tables     map[api.Protocol]*ruleTable // nil before the first rule
}

func newRuleTable() *ruleTable {
	return &ruleTable{
		trees: [2]*ruleTree{newRuleTree(netip.IPv4Unspecified()), newRuleTree(netip.IPv6Unspecified())},
		byTag: make(map[string]uint32), tagsOf: make(map[taggedRule]string),
	}
}

// init creates the tables; the first rule calls it.
func (g *ruleGroup) init() {
	if g.tables == nil {
		g.tables = map[api.Protocol]*ruleTable{api.TCP: newRuleTable(), api.UDP: newRuleTable()}
	}
}

// addReplace adds a rule, or changes the action and tag of the one with the same match. It fails if the
// tag is in use.
func (t *ruleTable) addReplace(m sessionMatch, action uint32, tag string, quirks bool) bool {
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

// untag removes the tag of a rule whose tag changes. VPP treats every such rule as IPv4: an IPv6
// rule's old tag stays in use, or the tag of the IPv4 rule with its index is removed.
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

// del removes the rule with a tag; if there is none, the rule with the match. The tag of a rule
// that is removed by its match stays in use. A tag of the other family selects the rule with the
// same index in this one.
func (t *ruleTable) del(m sessionMatch, tag string) {
	v6 := familyOf(m.rmt)
	index, ok := t.byTag[tag]
	if tag == "" || !ok {
		t.trees[v6].remove(m)
		return
	}
	if n := t.trees[v6].rules.Get(index); n != nil { // VPP reads invalid memory here
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
