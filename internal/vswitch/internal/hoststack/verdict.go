package hoststack

import (
	"math/bits"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Verdict is the decision of session rules about a connection attempt.
type Verdict struct {
	Action api.Action
	// Rule is the deciding rule; its Action is None if there was none, which permits.
	Rule Rule
}

// Connect decides by the local rules of a namespace whether an application may open a connection.
// The application has the local scope, without which VPP ignores the rules.
func (s *Stack) Connect(namespace uint32, f api.Flow) (v Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces.Get(namespace)
	if n == nil || !hasTransport(f) {
		return v
	}
	unspecified := netip.IPv4Unspecified()
	if f.Dst.Is6() {
		unspecified = netip.IPv6Unspecified()
	}
	return s.evaluate(n.local, f, endpoints{lcl: unspecified, rmt: f.Dst, rmtPort: s.portOf(f.DstPort)})
}

// Accept decides by the rules of the routing tables of a namespace whether the first packet of a
// flow reaches its listeners.
func (s *Stack) Accept(namespace uint32, f api.Flow) (v Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces.Get(namespace)
	if n == nil || !hasTransport(f) {
		return v
	}
	v6 := familyOf(netip.PrefixFrom(f.Dst, 0))
	return s.evaluate(s.global[v6][n.fibs[v6]], f,
		endpoints{lcl: f.Dst, rmt: f.Src, lclPort: s.portOf(f.DstPort), rmtPort: s.portOf(f.SrcPort)})
}

// hasTransport reports whether the session layer supports the protocol of a flow.
func hasTransport(f api.Flow) bool { return f.Protocol == api.TCP || f.Protocol == api.UDP }

// portOf returns a port as the rules store it.
func (s *Stack) portOf(p uint16) uint16 {
	if s.quirks {
		return bits.ReverseBytes16(p)
	}
	return p
}

// evaluate looks up the rules of a table; the lock is held.
func (s *Stack) evaluate(g *ruleGroup, f api.Flow, k endpoints) Verdict {
	v := Verdict{Action: api.Permit, Rule: Rule{Action: None}}
	if g == nil || g.tables == nil {
		return v
	}
	t := g.tables[f.Protocol]
	v6 := familyOf(netip.PrefixFrom(f.Dst, 0))
	index, action := t.trees[v6].lookup(0, k)
	if action == None {
		return v
	}
	v.Rule = s.ruleAt(g, f.Protocol, v6, index)
	if action == Drop {
		v.Action = api.Deny
	}
	return v
}
