package hoststack

import (
	"math/bits"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Verdict is what session rules say of a connection attempt.
type Verdict struct {
	Action api.Action
	// Rule decided; its Action is None when none did, which permits.
	Rule Rule
}

// Connect reports whether an application of a namespace may open a connection: by the local
// rules of the namespace. The application has the local scope, without which VPP does not
// look at them.
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

// Accept reports whether the first packet of a flow reaches the listeners of the routing
// tables of a namespace: by their rules.
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

// hasTransport reports whether the session layer has the protocol of a flow.
func hasTransport(f api.Flow) bool { return f.Protocol == api.TCP || f.Protocol == api.UDP }

// portOf returns a port as it is looked up.
func (s *Stack) portOf(p uint16) uint16 {
	if s.quirks {
		return bits.ReverseBytes16(p)
	}
	return p
}

// evaluate asks the rules of a table; the lock is held.
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
