package hoststack

import (
	"fmt"
	"net/netip"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
)

// Rule is a session rule of the vswitch.
type Rule struct {
	Local      bool         `json:"local"`
	Namespaces []uint32     `json:"namespaces"` // that the table is of
	Protocol   api.Protocol `json:"protocol"`
	Lcl        netip.Prefix `json:"lcl"`
	Rmt        netip.Prefix `json:"rmt"`
	LclPort    uint16       `json:"lclPort,omitempty"` // as applications say them; 0 is any
	RmtPort    uint16       `json:"rmtPort,omitempty"`
	Action     uint32       `json:"action"`
	Tag        string       `json:"tag,omitempty"`

	ports  [2]uint16 // as stored
	index  uint32
	dumped string // the tag in dumps
}

// ruleAt returns a rule of a table; the lock is held.
func (s *Stack) ruleAt(g *ruleGroup, p api.Protocol, v6 int, index uint32) Rule {
	t := g.tables[p]
	n := t.trees[v6].rules.Get(index)
	r := Rule{
		Local: g.local, Namespaces: append([]uint32(nil), g.namespaces...), Protocol: p, Lcl: n.match.lcl, Rmt: n.match.rmt,
		LclPort: s.portOf(n.match.lclPort), RmtPort: s.portOf(n.match.rmtPort), Action: n.action,
		Tag: t.tagsOf[taggedRule{index, v6}], ports: [2]uint16{n.match.lclPort, n.match.rmtPort}, index: index,
	}
	if r.dumped = r.Tag; s.quirks { // looked up as if the rule were IPv4
		r.dumped = t.tagsOf[taggedRule{index, 0}]
	}
	return r
}

// all returns all rules with the roots of tables.
func (s *Stack) all() (out []Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.order {
		if g.tables == nil {
			continue
		}
		for _, p := range [2]api.Protocol{api.TCP, api.UDP} {
			for v6 := range 2 {
				if !g.local && v6 != g.v6 {
					continue
				}
				for index := range g.tables[p].trees[v6].rules.All() {
					out = append(out, s.ruleAt(g, p, v6, index))
				}
			}
		}
	}
	return out
}

// SessionRules returns the rules that were added, by table.
func (s *Stack) SessionRules() (out []Rule) {
	for _, r := range s.all() {
		if r.index != 0 || r.Action != None {
			out = append(out, r)
		}
	}
	return out
}

// String describes the rule for users.
func (r Rule) String() string {
	scope := "global"
	if r.Local {
		scope = "local"
	}
	return fmt.Sprintf("%s %s %s %d from %s %d: %d", scope, r.Protocol, r.Lcl, r.LclPort, r.Rmt, r.RmtPort, int32(r.Action))
}

// Scopes of a session rule, as VPP keeps them.
const (
	scopeGlobal = 1
	scopeLocal  = 2
)

// ruleChange is a request to add or remove a session rule.
type ruleChange struct {
	add       bool
	protocol  api.Protocol
	match     sessionMatch
	action    uint32
	tag       string
	namespace uint32
	scope     uint32
}

// changeRule adds or removes a session rule; the lock is held.
func (s *Stack) changeRule(c ruleChange) govpp.VPPApiError {
	n := s.namespaces.Get(c.namespace)
	switch {
	case !s.enabled:
		return govpp.FEATURE_DISABLED
	case n == nil || c.scope > scopeGlobal|scopeLocal || !s.ruleTables:
		return govpp.UNSPECIFIED
	}
	if c.scope == 0 || c.scope&scopeGlobal != 0 {
		v6 := familyOf(c.match.rmt)
		if rv := s.global[v6][n.fibs[v6]].change(c, s.quirks); rv != 0 {
			return rv
		}
	}
	if c.scope&scopeLocal == 0 {
		return 0
	}
	// The source of a connection is irrelevant there.
	c.match.lcl, c.match.lclPort = netip.PrefixFrom(c.match.rmt.Addr(), 0).Masked(), 0
	return n.local.change(c, s.quirks)
}

func (g *ruleGroup) change(c ruleChange, quirks bool) govpp.VPPApiError {
	if g == nil {
		return govpp.UNSPECIFIED
	}
	g.init()
	t := g.tables[c.protocol]
	if !c.add {
		t.del(c.match, c.tag)
		return 0
	}
	if !t.addReplace(c.match, c.action, c.tag, quirks) {
		return govpp.UNSPECIFIED
	}
	return 0
}

// ChangeSessionRule adds a rule to the tables of the first of its namespaces, or removes it, as the
// API does, and reports whether that succeeded. Its ports are in host byte order.
func (s *Stack) ChangeSessionRule(add bool, r Rule) bool {
	c := ruleChange{
		add: add, protocol: r.Protocol, match: sessionMatch{r.Lcl, r.Rmt, s.portOf(r.LclPort), s.portOf(r.RmtPort)},
		action: r.Action, tag: r.Tag, namespace: r.Namespaces[0], scope: scopeGlobal,
	}
	if r.Local {
		c.scope = scopeLocal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeRule(c) == 0
}
