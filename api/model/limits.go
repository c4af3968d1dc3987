package model

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// Limits on one object. plugins/ksr/convert applies them to what it reflects; Decode, ParseKey and
// the cache apply them to what any other writer put into the store. Each admits at least what the
// Kubernetes API allows; docs/reference/limits.md has the measurements behind them.
const (
	// MaxValue is the maximum size of an encoded value in bytes. An etcd server accepts requests of
	// 1.5 MiB, so no object of a Kubernetes cluster is larger; 16 KiB are reserved for the key and
	// the framing of the request. Beside MaxRules it is the only bound on the lists in an object
	// (peers, ports, exceptions, labels, values); the largest value is processed in about a second.
	MaxValue = 1536<<10 - 16<<10
	// MaxNamespace is the maximum length of a namespace name, a DNS label.
	MaxNamespace = 63
	// MaxName is the maximum length of any other name, a DNS subdomain.
	MaxName = 253
	// MaxAddresses is how many addresses of a pod, and of the node in its status, are used. The API
	// server allows a pod one per family. Tables of a vswitch hold an entry per address and peer.
	// For one pod with 2 000 addresses among 100 pods they took 385 MB of allocations. 20 000
	// addresses were not installed within 40 seconds.
	MaxAddresses = 64
	// MaxFamilies is the maximum number of combinations of a peer and a port name in the egress
	// rules of one policy, of any kind. Each combination needs its own address set, because every
	// peer resolves a name to its own numbers. The maximum takes a second and 300 MB; a value of
	// maximum size could otherwise cause thousands of millions.
	MaxFamilies = 100_000
	// MaxRules is the maximum number of rules of one policy, of both directions together. A rule
	// takes two bytes at least, but its origin takes 48 in every list of a pod that has it.
	MaxRules = 100_000
	// MaxProblems is how many problems of one object are reported individually. Further errors fail
	// closed in the same way and are reported as one total.
	MaxProblems = 100
)

// CheckLimits returns an error if an object that takes size bytes is larger than MaxValue, or is a
// policy of too many rules. m may be nil if it is not known.
func CheckLimits(m proto.Message, size int) error {
	if size > MaxValue {
		return fmt.Errorf("needs %d bytes in the store, the limit is %d: split it", size, MaxValue)
	}
	ingress, egress := 0, 0
	switch p := m.(type) {
	case *NetworkPolicy:
		ingress, egress = len(p.GetIngress()), len(p.GetEgress())
	case *ClusterPolicy:
		ingress, egress = len(p.GetIngress()), len(p.GetEgress())
	}
	if ingress+egress <= MaxRules {
		return nil
	}
	return fmt.Errorf("spec.ingress has %d rules and spec.egress %d, the limit is %d together: split the policy", ingress, egress, MaxRules)
}

// TooManyFamilies explains why a rule is among OverFamilies.
func (r *NetworkPolicy_Rule) TooManyFamilies() string {
	return tooManyFamilies("matches nothing", r.Families())
}

// TooManyFamilies explains why a rule is among OverFamilies, and the effect on the rule.
func (r *ClusterPolicy_Rule) TooManyFamilies() string {
	if r.GetAction() == ClusterPolicy_ACTION_ALLOW {
		return tooManyFamilies("matches nothing", r.Families())
	}
	return tooManyFamilies("denies everything", r.Families())
}

func tooManyFamilies(becomes string, n int) string {
	return fmt.Sprintf("the rule %s: its %d combinations of a peer with the name of a port are more than what is left of the limit of %d for the egress of a policy: write numbers, or split the policy",
		becomes, n, MaxFamilies)
}

// maxQuoted is how many bytes of the input a message repeats.
const maxQuoted = 80

// Quoted returns text of the input for a message: quoted, with printable characters only, and
// truncated if long.
func Quoted(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(cut(s)) + fmt.Sprintf(" (%d bytes)", len(s))
}

// cut truncates a long text.
func cut(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}

// Source returns a store key for use as the source of a problem: unchanged if it can be the key of
// an object, otherwise quoted and truncated.
func Source(key string) string {
	if len(key) <= maxKeyText && utf8.ValidString(key) && strings.IndexFunc(key, unprintable) < 0 {
		return key
	}
	return Quoted(key)
}

// maxKeyText is longer than any object key below a sensible prefix.
const maxKeyText = 1024

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// Printable returns foreign text for a line of output. Characters that move the cursor of a
// terminal, start another line or change the writing direction are escaped as in a Go string.
func Printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if part := s[:n]; r == utf8.RuneError && n == 1 || unprintable(r) {
			quoted := strconv.Quote(part)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(part)
		}
		s = s[n:]
	}
	return b.String()
}

// Families counts the combinations of a peer and a port name in an egress rule. A rule without
// peers has one peer: any.
func (r *NetworkPolicy_Rule) Families() int {
	names := 0
	for _, p := range r.GetPorts() {
		if _, named := p.GetPort().(*NetworkPolicy_Port_Name); named {
			names++
		}
	}
	return names * max(1, len(r.GetPeers()))
}

// Families counts the combinations of a peer and a port name in an egress rule. Only pods have
// named ports, so a rule with any other peer has none.
func (r *ClusterPolicy_Rule) Families() int {
	for _, p := range r.GetPeers() {
		if _, pods := p.GetPeer().(*ClusterPolicy_Peer_Pods); !pods {
			return 0
		}
	}
	names := 0
	for _, p := range r.GetPorts() {
		if _, named := p.GetPort().(*ClusterPolicy_Port_Name); named {
			names++
		}
	}
	return names * len(r.GetPeers())
}

// OverFamilies returns the indexes of the egress rules that, added to the preceding accepted rules,
// exceed MaxFamilies. They match nothing.
func (p *NetworkPolicy) OverFamilies() []int { return overFamilies(p.GetEgress()) }

// OverFamilies returns the indexes of the egress rules that, added to the preceding accepted rules,
// exceed MaxFamilies. Those that allow match nothing; the others deny everything.
func (p *ClusterPolicy) OverFamilies() []int { return overFamilies(p.GetEgress()) }

func overFamilies[R interface{ Families() int }](rules []R) []int {
	var over []int
	total := 0
	for i, r := range rules {
		n := r.Families()
		if n > MaxFamilies-total {
			over = append(over, i)
			continue
		}
		total += n
	}
	return over
}
