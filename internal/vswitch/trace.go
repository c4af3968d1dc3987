package vswitch

import (
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Trace describes what happened to one packet.
type Trace struct {
	Packet  Packet     `json:"packet"`
	Verdict api.Action `json:"verdict"`
	Reason  string     `json:"reason"` // one of the Reason constants, or what is malformed
	Out     string     `json:"out,omitempty"`
	Hops    []Hop      `json:"hops,omitempty"`
}

// Why a packet was delivered or dropped.
const (
	ReasonDelivered       = "delivered"
	ReasonDenied          = "denied by a rule"
	ReasonImplicitDeny    = "no rule of the ACLs matches"
	ReasonNoRoute         = "no route"
	ReasonSource          = "the interface may not send from this source"
	ReasonNoInterface     = "no such interface"
	ReasonDown            = "interface is down"
	ReasonTooManySessions = "too many sessions"
	ReasonAddresses       = "source and destination are not addresses of one family"
)

// Match is what decided about a packet in one direction of an interface.
type Match string

// The kinds of Match.
const (
	MatchSession Match = "session"
	MatchACL     Match = "acl"
	MatchOpen    Match = "none applied" // no ACL is bound in this direction
	MatchNothing Match = "implicit deny"
)

// Hop is one direction of one interface that a packet traversed. The fields about a rule are set if
// Matched is acl; for session they name the rule that created the session, as it was then.
type Hop struct {
	Interface      string        `json:"interface"`
	SwIfIndex      uint32        `json:"swIfIndex"`
	Tag            string        `json:"tag,omitempty"` // of the interface
	Direction      api.Direction `json:"direction"`     // seen from the vswitch
	Matched        Match         `json:"matched"`
	Action         api.Action    `json:"action"`
	ACLIndex       uint32        `json:"aclIndex"`
	ACLTag         string        `json:"aclTag,omitempty"`
	Rule           int           `json:"rule"` // -1 when no rule took part
	RuleText       RuleText      `json:"ruleText,omitzero"`
	SessionCreated bool          `json:"sessionCreated,omitzero"`
	SessionRevoked bool          `json:"sessionRevoked,omitzero"` // the packet had a session, which policy no longer permits
}

// RuleText formats a rule lazily: for most packets only the verdict is needed. The zero value is no
// rule.
type RuleText struct {
	list *accessList
	rule int
}

// String returns what Rule.String does, or "" for no rule.
func (t RuleText) String() string {
	if t.list == nil {
		return ""
	}
	return t.list.rule(t.rule).String()
}

// MarshalText renders the rule as String does.
func (t RuleText) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// String returns the trace on several lines, without a newline at the end.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.Packet)
	for _, h := range t.Hops {
		fmt.Fprintf(&b, "  %s\n", h)
	}
	fmt.Fprintf(&b, "  %s: %s", t.Verdict, t.Reason)
	if t.Out != "" {
		fmt.Fprintf(&b, " on %s", t.Out)
	}
	return b.String()
}

// String returns for example
// "pod1 ingress: permit by acl 3 (sluice:local) rule 0: ...; session created".
func (h Hop) String() string { return fmt.Sprintf("%s %s: %s", h.Interface, h.Direction, h.Decided()) }

// Decided returns what String does, without the interface and the direction.
func (h Hop) Decided() string {
	s := fmt.Sprintf("%s by %s", h.Action, h.Matched)
	switch h.Matched {
	case MatchACL, MatchSession:
		if h.Matched == MatchSession {
			s += " of acl"
		}
		s += fmt.Sprintf(" %d (%s) rule %d: %s", h.ACLIndex, h.ACLTag, h.Rule, h.RuleText)
	case MatchOpen, MatchNothing:
	}
	if h.SessionCreated {
		s += "; session created"
	}
	if h.SessionRevoked {
		s += "; session revoked"
	}
	return s
}

// String returns for example "10.0.0.1:4000 -> 10.0.0.2:80/tcp flags 0x02".
func (p Packet) String() string {
	f := api.Flow{Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, SrcPort: p.SrcPort, DstPort: p.DstPort}
	switch {
	case p.NonFirstFragment:
		return fmt.Sprintf("%s -> %s/%s fragment", p.Src, p.Dst, p.Protocol)
	case p.Protocol == api.TCP:
		return fmt.Sprintf("%s flags %#02x", f, p.TCPFlags)
	case p.Protocol == api.ICMP || p.Protocol == api.ICMPv6:
		return fmt.Sprintf("%s type %d code %d", f, p.ICMPType, p.ICMPCode)
	}
	return f.String()
}
