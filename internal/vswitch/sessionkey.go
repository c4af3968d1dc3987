package vswitch

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// sessionKey is a flow as the ingress direction of an interface sees it, so that
// both directions of a flow have one key: near is the side of the interface. The
// fields leave no gaps, which makes hashing fast.
type sessionKey struct {
	near, far         netip.Addr
	nearPort, farPort uint16
	proto             uint32
}

// newSessionKey returns the key of a packet. It is false for packets that have no
// sessions: fragments without ports, and ICMP other than queries and answers.
func newSessionKey(dir api.Direction, t *tuple) (sessionKey, bool) {
	if t.fragment {
		return sessionKey{}, false
	}
	sport, dport := t.sport, t.dport
	if t.proto == api.ICMP || t.proto == api.ICMPv6 {
		answer, _, ok := icmpPartner(t.proto, sport)
		if !ok {
			return sessionKey{}, false
		}
		// The type stands in nearPort as the near side sends it.
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
	k := sessionKey{near: t.src, far: t.dst, nearPort: nearPort, farPort: farPort, proto: uint32(t.proto)}
	if dir == api.Egress {
		k.near, k.far = t.dst, t.src
	}
	return k
}

// tuple returns the packet that created a session with the key in a direction.
func (k sessionKey) tuple(dir api.Direction, flags uint8) tuple {
	t := tuple{src: k.near, dst: k.far, proto: api.Protocol(k.proto), sport: k.nearPort, dport: k.farPort, flags: flags}
	if dir == api.Ingress {
		return t
	}
	t.src, t.dst = t.dst, t.src
	if t.proto == api.ICMP || t.proto == api.ICMPv6 {
		t.sport, _, _ = icmpPartner(t.proto, t.sport)
	} else {
		t.sport, t.dport = t.dport, t.sport
	}
	return t
}

// icmpPartner returns the type that answers a query, or that an answer answers.
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

// startsSession says whether a packet may create a session: an answer of ICMP may
// not.
func startsSession(t *tuple) bool {
	if t.fragment {
		return false
	}
	if t.proto == api.ICMP || t.proto == api.ICMPv6 {
		_, query, ok := icmpPartner(t.proto, t.sport)
		return ok && query
	}
	return true
}
