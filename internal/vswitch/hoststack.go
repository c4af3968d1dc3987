package vswitch

import (
	"math/bits"
	"net/netip"
	"slices"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
)

// hostStack is the configuration of the session layer: applications of a namespace connect
// and listen in it, and session rules say with whom. It is guarded by the lock of the switch.
//
// By Options.Quirks it does what VPP 25.10 does:
//
//   - The scope of a rule is read in the wrong byte order, so that every documented value
//     means "global", and 0x02000000 and 0x03000000 mean "local" and "both".
//   - Ports of rules are kept in the order of the machine and compared with ports in the
//     order of the network: a rule for port 80 matches port 20480.
//   - The tags of IPv6 rules are not dumped; where an IPv4 rule has the same index, its tag
//     is. One that gets another tag keeps the old one taken.
type hostStack struct {
	enabled    bool
	ruleTables bool // rules are the backend
	namespaces pool[appNamespace]
	global     [2]map[uint32]*ruleGroup // by family and routing table
	order      []*ruleGroup             // in which they are dumped
}

// appNamespace is what applications attach to.
type appNamespace struct {
	id     string
	index  uint32
	secret uint64
	port   uint32    // sw_if_index, or allPorts
	fibs   [2]uint32 // routing tables of IPv4 and IPv6, or allPorts
	sock   string
	local  *ruleGroup
}

// enableSessions switches the session layer on or off. One that is on already stays as it is.
func (s *Switch) enableSessions(on, rules bool) {
	s.set(func(s *Switch) {
		h := &s.host
		if on == h.enabled {
			return
		}
		*h = hostStack{enabled: on, ruleTables: on && rules, global: [2]map[uint32]*ruleGroup{{}, {}}}
		if on {
			h.addNamespace(&appNamespace{id: "default", port: allPorts})
		}
	})
}

// restart forgets all rules. Namespaces stay, because the embedder would create them again.
func (h *hostStack) restart() {
	h.global, h.order = [2]map[uint32]*ruleGroup{{}, {}}, nil
	for _, n := range h.namespaces.all() {
		n.local = &ruleGroup{local: true, namespaces: []uint32{n.index}}
		h.order = append(h.order, n.local)
		h.enter(n)
	}
}

// addNamespace adds a namespace, or replaces the one with its name.
func (h *hostStack) addNamespace(n *appNamespace) uint32 {
	if old := h.namespace(n.id); old != nil {
		n.index, n.local, n.sock = old.index, old.local, old.sock
		h.leave(old)
		*old = *n
		h.enter(old)
		return old.index
	}
	n.index = h.namespaces.next()
	n.local = &ruleGroup{local: true, namespaces: []uint32{n.index}}
	h.order = append(h.order, n.local)
	h.namespaces.put(n)
	h.enter(n)
	return n.index
}

func (h *hostStack) namespace(id string) *appNamespace {
	for _, n := range h.namespaces.all() {
		if n.id == id {
			return n
		}
	}
	return nil
}

// enter makes the routing tables of a namespace know it.
func (h *hostStack) enter(n *appNamespace) {
	for v6, fib := range n.fibs {
		if fib == allPorts {
			continue
		}
		g := h.global[v6][fib]
		if g == nil {
			g = &ruleGroup{v6: v6}
			h.global[v6][fib] = g
			h.order = append(h.order, g)
		}
		g.namespaces = append(g.namespaces, n.index)
	}
}

// leave makes the routing tables of a namespace forget it. One without namespaces goes.
func (h *hostStack) leave(n *appNamespace) {
	for v6, fib := range n.fibs {
		g := h.global[v6][fib]
		if g == nil {
			continue
		}
		g.namespaces = slices.DeleteFunc(g.namespaces, func(i uint32) bool { return i == n.index })
		if len(g.namespaces) == 0 {
			delete(h.global[v6], fib)
			h.order = slices.DeleteFunc(h.order, func(o *ruleGroup) bool { return o == g })
		}
	}
}

// removeNamespace removes a namespace with its local rules.
func (h *hostStack) removeNamespace(id string) bool {
	n := h.namespace(id)
	if n == nil {
		return false
	}
	h.leave(n)
	h.order = slices.DeleteFunc(h.order, func(g *ruleGroup) bool { return g == n.local })
	h.namespaces.remove(n.index)
	return true
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
func (h *hostStack) changeRule(c ruleChange, quirks bool) govpp.VPPApiError {
	n := h.namespaces.get(c.namespace)
	switch {
	case !h.enabled:
		return govpp.FEATURE_DISABLED
	case n == nil || c.scope > scopeGlobal|scopeLocal || !h.ruleTables:
		return govpp.UNSPECIFIED
	}
	if c.scope == 0 || c.scope&scopeGlobal != 0 {
		v6 := familyOf(c.match.rmt)
		if rv := h.global[v6][n.fibs[v6]].change(c, quirks); rv != 0 {
			return rv
		}
	}
	if c.scope&scopeLocal == 0 {
		return 0
	}
	// Where an application connects from does not matter there.
	c.match.lcl, c.match.lclPort = netip.PrefixFrom(c.match.rmt.Addr(), 0).Masked(), 0
	return n.local.change(c, quirks)
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
	if !t.put(c.match, c.action, c.tag, quirks) {
		return govpp.UNSPECIFIED
	}
	return 0
}

// AddNamespace adds an application namespace that is bound to the routing table 0 of both
// families, as a CNI plugin does for a pod whose applications use the host stack. It
// switches the session layer on, with rules, if it is off.
func (s *Switch) AddNamespace(id string) (index uint32) {
	s.enableSessions(true, true)
	s.set(func(s *Switch) { index = s.host.addNamespace(&appNamespace{id: id, port: allPorts}) })
	return index
}

// RemoveNamespace removes an application namespace with its rules.
func (s *Switch) RemoveNamespace(id string) bool {
	var ok bool
	s.set(func(s *Switch) { ok = s.host.removeNamespace(id) })
	return ok
}

// SessionVerdict is what session rules say of a connection attempt.
type SessionVerdict struct {
	Action api.Action
	// Rule decided; its Action is SessionRuleNone when none did, which permits.
	Rule SessionRule
}

// Connect says whether an application of a namespace may open a connection: by the local
// rules of the namespace. The application has the local scope, without which VPP does not
// look at them.
func (s *Switch) Connect(namespace uint32, f api.Flow) (v SessionVerdict) {
	s.set(func(s *Switch) {
		n := s.host.namespaces.get(namespace)
		if n == nil || !hasTransport(f) {
			return
		}
		unspecified := netip.IPv4Unspecified()
		if f.Dst.Is6() {
			unspecified = netip.IPv6Unspecified()
		}
		v = s.evaluate(n.local, f, endpoints{lcl: unspecified, rmt: f.Dst, rmtPort: s.portOf(f.DstPort)})
	})
	return v
}

// Accept says whether the first packet of a flow reaches the listeners of the routing
// tables of a namespace: by their rules.
func (s *Switch) Accept(namespace uint32, f api.Flow) (v SessionVerdict) {
	s.set(func(s *Switch) {
		n := s.host.namespaces.get(namespace)
		if n == nil || !hasTransport(f) {
			return
		}
		v6 := familyOf(netip.PrefixFrom(f.Dst, 0))
		v = s.evaluate(s.host.global[v6][n.fibs[v6]], f,
			endpoints{lcl: f.Dst, rmt: f.Src, lclPort: s.portOf(f.DstPort), rmtPort: s.portOf(f.SrcPort)})
	})
	return v
}

// hasTransport says whether the session layer has the protocol of a flow.
func hasTransport(f api.Flow) bool { return f.Protocol == api.TCP || f.Protocol == api.UDP }

// portOf returns a port as it is looked up.
func (s *Switch) portOf(p uint16) uint16 {
	if s.quirks {
		return bits.ReverseBytes16(p)
	}
	return p
}

func (s *Switch) evaluate(g *ruleGroup, f api.Flow, k endpoints) SessionVerdict {
	v := SessionVerdict{Action: api.Permit, Rule: SessionRule{Action: SessionRuleNone}}
	if g == nil || g.tables == nil {
		return v
	}
	t := g.tables[f.Protocol]
	v6 := familyOf(netip.PrefixFrom(f.Dst, 0))
	index, action := t.trees[v6].lookup(0, k)
	if action == SessionRuleNone {
		return v
	}
	v.Rule = s.sessionRule(g, f.Protocol, v6, index)
	if action == SessionRuleDrop {
		v.Action = api.Deny
	}
	return v
}

// ChangeSessionRule adds a rule to the tables of the first of its namespaces, or removes it,
// as the API does, and says whether that was done. Its ports are as applications say them.
func (s *Switch) ChangeSessionRule(add bool, r SessionRule) bool {
	c := ruleChange{
		add: add, protocol: r.Protocol, match: sessionMatch{r.Lcl, r.Rmt, s.portOf(r.LclPort), s.portOf(r.RmtPort)},
		action: r.Action, tag: r.Tag, namespace: r.Namespaces[0], scope: scopeGlobal,
	}
	if r.Local {
		c.scope = scopeLocal
	}
	ok := false
	s.set(func(s *Switch) { ok = s.host.changeRule(c, s.quirks) == 0 })
	return ok
}
