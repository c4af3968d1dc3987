package vswitch

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip_types"
	hostsession "go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
)

func sessionMessages() []*message {
	return []*message{
		request((*client).sessionEnableDisable), reply(new(hostsession.SessionEnableDisableReply)),
		request((*client).sessionEnableDisableV2), reply(new(hostsession.SessionEnableDisableV2Reply)),
		request((*client).sessionRuleAddDel), reply(new(hostsession.SessionRuleAddDelReply)),
		request((*client).sessionRulesDump), reply(new(hostsession.SessionRulesDetails)),
		request((*client).sessionRulesV2Dump), reply(new(hostsession.SessionRulesV2Details)),
		request((*client).appNamespaceAddDelV4), reply(new(hostsession.AppNamespaceAddDelV4Reply)),
	}
}

func (c *client) sessionEnableDisable(m *hostsession.SessionEnableDisable, reply func(govpp.Message)) {
	c.sw.enableSessions(m.IsEnable, true)
	reply(&hostsession.SessionEnableDisableReply{})
}

// sessionEnableDisableV2 answers 0 also when it does nothing because sessions are enabled
// already, without rules.
func (c *client) sessionEnableDisableV2(m *hostsession.SessionEnableDisableV2, reply func(govpp.Message)) {
	c.sw.enableSessions(m.RtEngineType != hostsession.RT_BACKEND_ENGINE_API_DISABLE, m.RtEngineType == hostsession.RT_BACKEND_ENGINE_API_RULE_TABLE)
	reply(&hostsession.SessionEnableDisableV2Reply{})
}

func (c *client) sessionRuleAddDel(m *hostsession.SessionRuleAddDel, reply func(govpp.Message)) {
	var rv govpp.VPPApiError
	c.sw.set(func(s *Switch) {
		change, ok := s.ruleChange(m)
		if !ok {
			rv = govpp.UNSPECIFIED
			return
		}
		rv = s.host.changeRule(change, s.quirks)
	})
	reply(&hostsession.SessionRuleAddDelReply{Retval: int32(rv)})
}

// ruleChange reads a request. What is not UDP counts as TCP.
func (s *Switch) ruleChange(m *hostsession.SessionRuleAddDel) (ruleChange, bool) {
	lcl, ok := sessionPrefix(m.Lcl)
	rmt, ok2 := sessionPrefix(m.Rmt)
	if !ok || !ok2 || lcl.Addr().Is4() != rmt.Addr().Is4() {
		return ruleChange{}, false
	}
	tag, _, _ := strings.Cut(m.Tag, "\x00")
	c := ruleChange{
		add: m.IsAdd, protocol: api.TCP, match: sessionMatch{lcl, rmt, m.LclPort, m.RmtPort},
		action: m.ActionIndex, tag: cut(tag, maxName), namespace: m.AppnsIndex, scope: s.scopeOf(m.Scope),
	}
	if m.TransportProto == hostsession.TRANSPORT_PROTO_API_UDP {
		c.protocol = api.UDP
	}
	return c, true
}

// sessionPrefix reads a prefix; what is behind its length does not count.
func sessionPrefix(w ip_types.Prefix) (netip.Prefix, bool) {
	addr := netip.AddrFrom4(w.Address.Un.GetIP4())
	if w.Address.Af == ip_types.ADDRESS_IP6 {
		addr = netip.AddrFrom16(w.Address.Un.GetIP6())
	}
	p := netip.PrefixFrom(addr, int(w.Len))
	return p.Masked(), p.IsValid()
}

// scopeOf returns the scope that a request means.
func (s *Switch) scopeOf(scope hostsession.SessionRuleScope) uint32 {
	if s.quirks { // the first byte of what should be the last
		return uint32(scope) >> 24
	}
	switch scope {
	case hostsession.SESSION_RULE_SCOPE_API_GLOBAL:
		return scopeGlobal
	case hostsession.SESSION_RULE_SCOPE_API_LOCAL:
		return scopeLocal
	case hostsession.SESSION_RULE_SCOPE_API_BOTH:
		return scopeGlobal | scopeLocal
	}
	return ^uint32(0)
}

// scopeToWire is what a dump says.
func (s *Switch) scopeToWire(local bool) hostsession.SessionRuleScope {
	switch {
	case !local:
		return hostsession.SESSION_RULE_SCOPE_API_GLOBAL
	case s.quirks:
		return hostsession.SessionRuleScope(bits.ReverseBytes32(uint32(hostsession.SESSION_RULE_SCOPE_API_LOCAL)))
	}
	return hostsession.SESSION_RULE_SCOPE_API_LOCAL
}

// SessionRule is a session rule as the vswitch has it.
type SessionRule struct {
	Local      bool         `json:"local"`
	Namespaces []uint32     `json:"namespaces"` // that the table is of
	Protocol   api.Protocol `json:"protocol"`
	Lcl        netip.Prefix `json:"lcl"`
	Rmt        netip.Prefix `json:"rmt"`
	LclPort    uint16       `json:"lclPort,omitempty"` // as applications say them; 0 is any
	RmtPort    uint16       `json:"rmtPort,omitempty"`
	Action     uint32       `json:"action"`
	Tag        string       `json:"tag,omitempty"`

	ports  [2]uint16 // as kept
	index  uint32
	dumped string // the tag that dumps tell
}

// sessionRule returns a rule of a table; the lock is held.
func (s *Switch) sessionRule(g *ruleGroup, p api.Protocol, v6 int, index uint32) SessionRule {
	t := g.tables[p]
	n := t.trees[v6].rules.get(index)
	r := SessionRule{
		Local: g.local, Namespaces: append([]uint32(nil), g.namespaces...), Protocol: p, Lcl: n.match.lcl, Rmt: n.match.rmt,
		LclPort: s.portOf(n.match.lclPort), RmtPort: s.portOf(n.match.rmtPort), Action: n.action,
		Tag: t.tagsOf[taggedRule{index, v6}], ports: [2]uint16{n.match.lclPort, n.match.rmtPort}, index: index,
	}
	if r.dumped = r.Tag; s.quirks { // looked up as if it were a rule of IPv4
		r.dumped = t.tagsOf[taggedRule{index, 0}]
	}
	return r
}

// sessionRules returns all rules with the roots of tables; the lock is held.
func (s *Switch) sessionRules() (out []SessionRule) {
	for _, g := range s.host.order {
		if g.tables == nil {
			continue
		}
		for _, p := range [2]api.Protocol{api.TCP, api.UDP} {
			for v6 := range 2 {
				if !g.local && v6 != g.v6 {
					continue
				}
				for index := range g.tables[p].trees[v6].rules.all() {
					out = append(out, s.sessionRule(g, p, v6, index))
				}
			}
		}
	}
	return out
}

// SessionRules returns the rules that somebody added, by table.
func (s *Switch) SessionRules() (out []SessionRule) {
	s.set(func(s *Switch) {
		for _, r := range s.sessionRules() {
			if r.index != 0 || r.Action != SessionRuleNone {
				out = append(out, r)
			}
		}
	})
	return out
}

func transportToWire(p api.Protocol) hostsession.TransportProto {
	if p == api.UDP {
		return hostsession.TRANSPORT_PROTO_API_UDP
	}
	return hostsession.TRANSPORT_PROTO_API_TCP
}

// sessionRulesDump tells of every rule the last namespace of its table only.
func (c *client) sessionRulesDump(_ *hostsession.SessionRulesDump, reply func(govpp.Message)) {
	var all []SessionRule
	c.sw.set(func(s *Switch) { all = s.sessionRules() })
	for _, r := range all {
		reply(&hostsession.SessionRulesDetails{
			TransportProto: transportToWire(r.Protocol), Lcl: prefixToWire(r.Lcl), Rmt: prefixToWire(r.Rmt),
			LclPort: r.ports[0], RmtPort: r.ports[1], ActionIndex: r.Action, AppnsIndex: r.Namespaces[len(r.Namespaces)-1],
			Scope: c.sw.scopeToWire(r.Local), Tag: r.dumped,
		})
	}
}

func (c *client) sessionRulesV2Dump(_ *hostsession.SessionRulesV2Dump, reply func(govpp.Message)) {
	var all []SessionRule
	c.sw.set(func(s *Switch) { all = s.sessionRules() })
	for _, r := range all {
		reply(&hostsession.SessionRulesV2Details{
			TransportProto: transportToWire(r.Protocol), Lcl: prefixToWire(r.Lcl), Rmt: prefixToWire(r.Rmt),
			LclPort: r.ports[0], RmtPort: r.ports[1], ActionIndex: r.Action, Scope: c.sw.scopeToWire(r.Local), Tag: r.dumped,
			Count: uint32(len(r.Namespaces)), AppnsIndex: r.Namespaces,
		})
	}
}

// appNamespaceAddDelV4 takes every routing table to exist; an interface is in table 0.
func (c *client) appNamespaceAddDelV4(m *hostsession.AppNamespaceAddDelV4, reply func(govpp.Message)) {
	var rv govpp.VPPApiError
	var index uint32
	id, _, _ := strings.Cut(m.NamespaceID, "\x00")
	c.sw.set(func(s *Switch) {
		n := &appNamespace{id: cut(id, maxName), secret: m.Secret, port: uint32(m.SwIfIndex), fibs: [2]uint32{m.IP4FibID, m.IP6FibID}, sock: m.SockName}
		if n.port != allPorts {
			n.fibs = [2]uint32{}
		}
		switch {
		case !s.host.enabled:
			rv = govpp.FEATURE_DISABLED
		case !m.IsAdd && !s.host.removeNamespace(n.id), m.IsAdd && !s.canBind(n):
			rv = govpp.UNSPECIFIED
		case m.IsAdd:
			index = s.host.addNamespace(n)
		}
	})
	reply(&hostsession.AppNamespaceAddDelV4Reply{Retval: int32(rv), AppnsIndex: index})
}

// canBind says whether there is what a namespace is to be bound to; the lock is held.
func (s *Switch) canBind(n *appNamespace) bool {
	if n.port != allPorts {
		return s.ports.get(n.port) != nil
	}
	return n.fibs != [2]uint32{allPorts, allPorts}
}

// sessionSize returns how long the elements of variable length of a request are.
func sessionSize(proto govpp.Message, payload []byte) uint64 {
	if m, ok := proto.(*hostsession.AppNamespaceAddDelV4); ok { // what ends with the length of the socket's name
		return uint64(binary.BigEndian.Uint32(payload[10+m.Size()-4:]))
	}
	return 0
}

// String is for people.
func (r SessionRule) String() string {
	scope := "global"
	if r.Local {
		scope = "local"
	}
	return fmt.Sprintf("%s %s %s %d from %s %d: %d", scope, r.Protocol, r.Lcl, r.LclPort, r.Rmt, r.RmtPort, int32(r.Action))
}
