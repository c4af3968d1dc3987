package model

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits on one object. Both doors apply them: plugins/ksr/convert to what it reflects,
// and Decode, ParseKey and the cache to what somebody else wrote into the store.
// None is below what the Kubernetes API can hold; docs/reference/limits.md has the
// measurements behind them.
const (
	// MaxValue is the size of one encoded value in bytes. An etcd server takes
	// requests of 1.5 MiB, and so no object of a Kubernetes cluster is larger; the
	// 16 KiB are for the key and what frames a request. Every list in an object
	// (peers, rules, ports, exceptions, labels, values) is bounded by it alone: what
	// fits into a value is worked on in about a second.
	MaxValue = 1536<<10 - 16<<10
	// MaxNamespace is the length of the name of a namespace, a DNS label.
	MaxNamespace = 63
	// MaxName is the length of the name of anything else, a DNS subdomain.
	MaxName = 253
	// MaxAddresses is how many addresses of a pod, and of its node as the pod tells
	// it, count. The API server lets a pod have one per family. Tables of a vswitch
	// hold an entry per address and peer: 2 000 addresses of one among 100 pods took
	// 385 MB of allocations, 20 000 were not installed within 40 seconds.
	MaxAddresses = 64
	// MaxFamilies is how many combinations of a peer with the name of a port the
	// egress rules of one policy, of any kind, may have. Each is a set of its own, because every
	// peer gives a name its own numbers: this many take a second and 300 MB, while
	// what fits into a value would come to thousands of millions.
	MaxFamilies = 100_000
	// MaxProblems is how many problems of one object are told one by one. What is
	// wrong beyond them closes in the same way, and is told in one sum.
	MaxProblems = 100
)

// TooLarge returns the error of a value of so many bytes.
func TooLarge(size int) error {
	return fmt.Errorf("needs %d bytes in the store, the limit is %d: split it", size, MaxValue)
}

// TooManyFamilies says why a rule is one of OverFamilies.
func (r *NetworkPolicy_Rule) TooManyFamilies() string {
	return tooManyFamilies("matches nothing", r.Families())
}

// TooManyFamilies says why a rule is one of OverFamilies, and what becomes of it.
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

// maxQuoted is how many bytes of what was read a message repeats.
const maxQuoted = 80

// Quoted returns a text of the input for a message: in quotes, in printable
// characters, and cut when it is long.
func Quoted(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(cut(s)) + fmt.Sprintf(" (%d bytes)", len(s))
}

// cut returns the beginning of a long text.
func cut(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}

// Source returns a key of the store as the source of a problem: as it is when it
// can be the key of an object, otherwise quoted and cut.
func Source(key string) string {
	if len(key) <= maxKeyText && utf8.ValidString(key) && strings.IndexFunc(key, unprintable) < 0 {
		return key
	}
	return Quoted(key)
}

// maxKeyText is longer than any key of an object below a sensible prefix.
const maxKeyText = 1024

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// Printable returns a text of others for a line that people read: what moves the cursor of a
// terminal, begins another line or turns the direction of writing is written as in a Go string.
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

// Families counts the combinations of a peer with the name of a port in an egress
// rule. A rule without peers has one peer: any.
func (r *NetworkPolicy_Rule) Families() int {
	names := 0
	for _, p := range r.GetPorts() {
		if _, named := p.GetPort().(*NetworkPolicy_Port_Name); named {
			names++
		}
	}
	return names * max(1, len(r.GetPeers()))
}

// Families counts the combinations of a peer with the name of a port in an egress
// rule. Only pods have names for their ports, so a rule with another peer has none.
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

// OverFamilies returns the indexes of the egress rules that exceed MaxFamilies
// together with those before them that do not. They match nothing.
func (p *NetworkPolicy) OverFamilies() []int { return overFamilies(p.GetEgress()) }

// OverFamilies returns the indexes of the egress rules that exceed MaxFamilies
// together with those before them that do not. Those that allow match nothing, the
// others deny everything.
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
