package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// section identifies the rules for a set of connection attempts: those from the applications of one
// namespace (its local rules), or those to one address of a pod (the rules of the routing table of
// its namespace). Sections do not overlap.
type section struct {
	namespace uint32
	local     bool
	transport api.Protocol
	own       netip.Prefix // destination address; everything for local rules
	family    int
}

// compare orders sections, so that changes are made in a stable order.
func (s section) compare(o section) int {
	local := 0
	if s.local != o.local {
		if local = 1; s.local {
			local = -1
		}
	}
	return cmp.Or(local, cmp.Compare(s.namespace, o.namespace), cmp.Compare(s.transport, o.transport),
		cmp.Compare(s.family, o.family), s.own.Addr().Compare(o.own.Addr()), cmp.Compare(s.own.Bits(), o.own.Bits()))
}

// describe describes the section of a pod in errors.
func (s section) describe(pod api.PodID) string {
	transport := strings.ToUpper(s.transport.String())
	if s.local {
		return fmt.Sprintf("namespace of pod %s, for what it opens over %s and %s,", pod, transport, [...]string{"IPv4", "IPv6"}[s.family])
	}
	return fmt.Sprintf("address %s of pod %s, for what reaches it over %s,", s.own.Addr(), pod, transport)
}

// rule describes a rule of a section.
func (s section) rule(at place) string {
	if s.local {
		return fmt.Sprintf("session rule of namespace %d to %s %s port %d", s.namespace, s.transport, at.peer, at.port)
	}
	return fmt.Sprintf("session rule from %s to %s %s port %d", at.peer, s.own, s.transport, at.port)
}

const (
	ownTag = "sluice:"
	maxTag = 63 // VPP's strings of 64 bytes end in a zero
)

// tagOf returns the tag of a rule: the pod, the table, a digest that makes it unique, and the
// policy as far as there is room.
func tagOf(s section, at place, action api.Action, origin string) string {
	scope := "global"
	if s.local {
		scope = "local"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %s %s %s %d %s", s.local, s.transport, s.own, at.peer, at.port, action))
	tag := ownTag + scope + ":" + hex.EncodeToString(sum[:10])
	if origin == "" {
		return tag
	}
	tag += ":" + strings.Map(plain, origin)
	return tag[:min(len(tag), maxTag)]
}

// plain replaces characters at which VPP's command line would split words.
func plain(r rune) rune {
	if r <= ' ' || r > '~' {
		return -1
	}
	return r
}
