package vswitch

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// sessionKey is a flow as seen by the ingress direction of an interface, so that both directions of
// a flow have one key: near is the side of the interface. The fields leave no gaps, which makes
// hashing fast.
type sessionKey struct {
	near, far         netip.Addr
	nearPort, farPort uint16
	proto             uint32
}

// newSessionKey returns the key of a packet. It returns false for packets without sessions:
// fragments without ports, and ICMP other than queries and answers.
func newSessionKey(dir api.Direction, t *tuple) (sessionKey, bool) {
	if t.Fragment {
		return sessionKey{}, false
	}
	sport, dport := t.SrcPort, t.DstPort
	if t.Protocol == api.ICMP || t.Protocol == api.ICMPv6 {
		answer, _, ok := icmpPartner(t.Protocol, sport)
		if !ok {
			return sessionKey{}, false
		}
		// nearPort holds the type that the near side sends.
		if dir == api.Egress {
			sport = answer
		}
		return orient(dir, t, sport, dport), true
	}
	if dir == api.Egress {
		sport, dport = dport, sport
	}
	return orient(dir, t, sport, dport), true
}

func orient(dir api.Direction, t *tuple, nearPort, farPort uint16) sessionKey {
	k := sessionKey{near: t.Src, far: t.Dst, nearPort: nearPort, farPort: farPort, proto: uint32(t.Protocol)}
	if dir == api.Egress {
		k.near, k.far = t.Dst, t.Src
	}
	return k
}

// tuple returns the packet that created a session with the key in a direction.
func (k sessionKey) tuple(dir api.Direction, flags uint8) tuple {
	t := tuple{Src: k.near, Dst: k.far, Protocol: api.Protocol(k.proto), SrcPort: k.nearPort, DstPort: k.farPort, Flags: flags}
	if dir == api.Ingress {
		return t
	}
	t.Src, t.Dst = t.Dst, t.Src
	if t.Protocol == api.ICMP || t.Protocol == api.ICMPv6 {
		t.SrcPort, _, _ = icmpPartner(t.Protocol, t.SrcPort)
	} else {
		t.SrcPort, t.DstPort = t.DstPort, t.SrcPort
	}
	return t
}

// icmpPartner returns the type of the answer to a query, or of the query of an answer.
func icmpPartner(proto api.Protocol, typ uint16) (partner uint16, query, ok bool) {
	if proto == api.ICMPv6 {
		switch typ {
		case 128, 139: // echo, node information
			return typ + 1, true, true
		case 129, 140:
			return typ - 1, false, true
		}
		return 0, false, false
	}
	switch typ {
	case 8: // echo
		return 0, true, true
	case 0:
		return 8, false, true
	case 13, 15, 17: // timestamp, information, address mask
		return typ + 1, true, true
	case 14, 16, 18:
		return typ - 1, false, true
	}
	return 0, false, false
}

// startsSession reports whether a packet may create a session: an ICMP answer may not.
func startsSession(t *tuple) bool {
	if t.Fragment {
		return false
	}
	if t.Protocol == api.ICMP || t.Protocol == api.ICMPv6 {
		_, query, ok := icmpPartner(t.Protocol, t.SrcPort)
		return ok && query
	}
	return true
}
