package hoststack

import (
	"math/bits"
	"net/netip"
	"strings"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip_types"
	hostsession "go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// Handlers handles the requests of the binary API about a stack, and commands of the CLI.
type Handlers struct{ *Stack }

// EnableDisable enables the session layer, with rules, or disables it.
func (h Handlers) EnableDisable(m *hostsession.SessionEnableDisable, reply func(govpp.Message)) {
	h.enable(m.IsEnable, true)
	reply(&hostsession.SessionEnableDisableReply{})
}

// EnableDisableV2 returns 0 even if it does nothing because sessions are already enabled without
// rules.
func (h Handlers) EnableDisableV2(m *hostsession.SessionEnableDisableV2, reply func(govpp.Message)) {
	h.enable(m.RtEngineType != hostsession.RT_BACKEND_ENGINE_API_DISABLE, m.RtEngineType == hostsession.RT_BACKEND_ENGINE_API_RULE_TABLE)
	reply(&hostsession.SessionEnableDisableV2Reply{})
}

// RuleAddDel adds or removes a rule.
func (h Handlers) RuleAddDel(m *hostsession.SessionRuleAddDel, reply func(govpp.Message)) {
	rv := govpp.UNSPECIFIED
	if change, ok := h.ruleChange(m); ok {
		h.mu.Lock()
		rv = h.changeRule(change)
		h.mu.Unlock()
	}
	reply(&hostsession.SessionRuleAddDelReply{Retval: int32(rv)})
}

// ruleChange parses a request. Any protocol other than UDP counts as TCP.
func (s *Stack) ruleChange(m *hostsession.SessionRuleAddDel) (ruleChange, bool) {
	lcl, ok := sessionPrefix(m.Lcl)
	rmt, ok2 := sessionPrefix(m.Rmt)
	if !ok || !ok2 || lcl.Addr().Is4() != rmt.Addr().Is4() {
		return ruleChange{}, false
	}
	tag, _, _ := strings.Cut(m.Tag, "\x00")
	c := ruleChange{
		add: m.IsAdd, protocol: api.TCP, match: sessionMatch{lcl, rmt, m.LclPort, m.RmtPort},
		action: m.ActionIndex, tag: wire.Cut(tag, wire.MaxName), namespace: m.AppnsIndex, scope: s.scopeOf(m.Scope),
	}
	if m.TransportProto == hostsession.TRANSPORT_PROTO_API_UDP {
		c.protocol = api.UDP
	}
	return c, true
}

// sessionPrefix parses a prefix; bits after its length are ignored.
func sessionPrefix(w ip_types.Prefix) (netip.Prefix, bool) {
	addr := netip.AddrFrom4(w.Address.Un.GetIP4())
	if w.Address.Af == ip_types.ADDRESS_IP6 {
		addr = netip.AddrFrom16(w.Address.Un.GetIP6())
	}
	p := netip.PrefixFrom(addr, int(w.Len))
	return p.Masked(), p.IsValid()
}

// scopeOf returns the scope in a request.
func (s *Stack) scopeOf(scope hostsession.SessionRuleScope) uint32 {
	if s.quirks { // the first byte is used instead of the last
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

// scopeToWire returns a scope for a dump.
func (s *Stack) scopeToWire(local bool) hostsession.SessionRuleScope {
	switch {
	case !local:
		return hostsession.SESSION_RULE_SCOPE_API_GLOBAL
	case s.quirks:
		return hostsession.SessionRuleScope(bits.ReverseBytes32(uint32(hostsession.SESSION_RULE_SCOPE_API_LOCAL)))
	}
	return hostsession.SESSION_RULE_SCOPE_API_LOCAL
}

func transportToWire(p api.Protocol) hostsession.TransportProto {
	if p == api.UDP {
		return hostsession.TRANSPORT_PROTO_API_UDP
	}
	return hostsession.TRANSPORT_PROTO_API_TCP
}

// RulesDump returns for every rule only the last namespace of its table.
func (h Handlers) RulesDump(_ *hostsession.SessionRulesDump, reply func(govpp.Message)) {
	for _, r := range h.all() {
		reply(&hostsession.SessionRulesDetails{
			TransportProto: transportToWire(r.Protocol), Lcl: wire.Prefix(r.Lcl), Rmt: wire.Prefix(r.Rmt),
			LclPort: r.ports[0], RmtPort: r.ports[1], ActionIndex: r.Action, AppnsIndex: r.Namespaces[len(r.Namespaces)-1],
			Scope: h.scopeToWire(r.Local), Tag: r.dumped,
		})
	}
}

// RulesV2Dump returns for every rule all namespaces of its table.
func (h Handlers) RulesV2Dump(_ *hostsession.SessionRulesV2Dump, reply func(govpp.Message)) {
	for _, r := range h.all() {
		reply(&hostsession.SessionRulesV2Details{
			TransportProto: transportToWire(r.Protocol), Lcl: wire.Prefix(r.Lcl), Rmt: wire.Prefix(r.Rmt),
			LclPort: r.ports[0], RmtPort: r.ports[1], ActionIndex: r.Action, Scope: h.scopeToWire(r.Local), Tag: r.dumped,
			Count: uint32(len(r.Namespaces)), AppnsIndex: r.Namespaces,
		})
	}
}

// AppNamespaceAddDelV4 assumes that every routing table exists; an interface is in table 0.
func (h Handlers) AppNamespaceAddDelV4(m *hostsession.AppNamespaceAddDelV4, reply func(govpp.Message)) {
	var rv govpp.VPPApiError
	var index uint32
	id, _, _ := strings.Cut(m.NamespaceID, "\x00")
	n := &appNamespace{id: wire.Cut(id, wire.MaxName), secret: m.Secret, port: uint32(m.SwIfIndex), fibs: [2]uint32{m.IP4FibID, m.IP6FibID}, sock: m.SockName}
	if n.port != none {
		n.fibs = [2]uint32{}
	}
	h.mu.Lock()
	switch {
	case !h.enabled:
		rv = govpp.FEATURE_DISABLED
	case !m.IsAdd && !h.removeNamespace(n.id), m.IsAdd && !h.canBind(n):
		rv = govpp.UNSPECIFIED
	case m.IsAdd:
		index = h.addNamespace(n)
	}
	h.mu.Unlock()
	reply(&hostsession.AppNamespaceAddDelV4Reply{Retval: int32(rv), AppnsIndex: index})
}

// canBind reports whether the interface to which a namespace is to be bound exists.
func (s *Stack) canBind(n *appNamespace) bool {
	if n.port != none {
		_, ok := s.portName(n.port)
		return ok
	}
	return n.fibs != [2]uint32{none, none}
}
