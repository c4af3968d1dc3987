package renderer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Digest identifies the content of a rule list or a table. Equal rules in equal order have equal
// digests; origins are not included.
type Digest [16]byte

// String returns the first eight bytes in hexadecimal, for display.
func (d Digest) String() string { return hex.EncodeToString(d[:8]) }

// RuleList is an immutable ordered list of rules. The first match decides.
type RuleList struct {
	rules   []api.ContivRule
	origins [][]api.Origin
	digest  Digest
	summary
}

// summary is what renderers ask of every list, so that they need not look at all rules.
type summary struct {
	open, restricts bool // a rule has permitted everything; one before it does not only permit
	unusual         []int32
}

// add adds the i-th rule.
func (s *summary) add(i int, r *api.ContivRule) {
	s.restricts = s.restricts || !s.open && (r.Action == api.Deny || r.Audit)
	s.open = s.open || r.Protocol == api.AnyProtocol && *r == (api.ContivRule{Action: api.Permit})
	usual := r.Protocol == api.TCP || r.Protocol == api.UDP
	if !usual && (r.Protocol != api.AnyProtocol || !r.DstPort.IsAny()) || !r.SrcPort.IsAny() || r.DstPort.First != r.DstPort.Last {
		s.unusual = append(s.unusual, int32(i))
	}
}

// NewRuleList takes ownership of both slices. origins[i] lists the origins of rules[i]; origins is
// as long as rules, or nil.
// It calls each pause between parts of the work, with the number of rules of the part.
func NewRuleList(rules []api.ContivRule, origins [][]api.Origin, pause ...func(rules int)) *RuleList {
	l := &RuleList{rules: rules, origins: origins}
	l.digest = digestRules(rules, l.add, pause)
	return l
}

// Rules returns the rules, none for a nil list. The caller must not change them.
func (l *RuleList) Rules() []api.ContivRule {
	if l == nil {
		return nil
	}
	return l.rules
}

// Origins returns the origins of the i-th rule.
func (l *RuleList) Origins(i int) []api.Origin {
	if l == nil || l.origins == nil {
		return nil
	}
	return l.origins[i]
}

// Restricts reports whether the list can deny or audit anything. A nil list, or one that permits
// everything before it does, restricts nothing.
func (l *RuleList) Restricts() bool { return l != nil && (l.restricts || !l.open) }

// Unusual returns the indexes of the rules that some dataplanes cannot express: those of other
// protocols than TCP and UDP, with source ports, or with several destination ports. The caller must
// not change them.
func (l *RuleList) Unusual() []int32 {
	if l == nil {
		return nil
	}
	return l.unusual
}

// WithOrigins returns the list with the origins of another one added, which has equal rules.
func (l *RuleList) WithOrigins(o *RuleList) *RuleList {
	if l == nil || o == nil || l == o {
		return cmp.Or(l, o)
	}
	return &RuleList{rules: l.rules, origins: MergedOrigins(l.origins, o.origins), digest: l.digest, summary: l.summary}
}

// MergedOrigins returns the origins of both, by rule. It returns the first one, as it is, if that
// has all.
func MergedOrigins(a, b [][]api.Origin) [][]api.Origin {
	if len(a) == 0 {
		return b
	}
	out := a
	for i := range b {
		if slices.Equal(a[i], b[i]) {
			continue
		}
		both := slices.Concat(a[i], b[i])
		slices.SortFunc(both, api.Origin.Compare)
		if both = slices.Compact(both); len(both) == len(a[i]) {
			continue
		}
		if &out[0] == &a[0] {
			out = slices.Clone(a)
		}
		out[i] = both
	}
	return out
}

// MarshalJSON encodes each rule with its origins.
func (l *RuleList) MarshalJSON() ([]byte, error) {
	type rule struct {
		Rule    api.ContivRule `json:"rule"`
		Origins []api.Origin   `json:"origins"`
	}
	out := make([]rule, len(l.Rules()))
	for i, r := range l.Rules() {
		out[i] = rule{r, l.Origins(i)}
	}
	return json.Marshal(out)
}

// Digest returns the digest of the rules. It is zero for a nil list.
func (l *RuleList) Digest() Digest {
	if l == nil {
		return Digest{}
	}
	return l.digest
}

// auditBit marks audited rules in digests.
const auditBit = 0x80

// DigestRules returns the digest of an ordered list of rules.
func DigestRules(rules []api.ContivRule) Digest {
	return digestRules(rules, func(int, *api.ContivRule) {}, nil)
}

// digestPart is how many rules are digested between two pauses.
const digestPart = 1 << 12

func digestRules(rules []api.ContivRule, each func(int, *api.ContivRule), pauses []func(rules int)) Digest {
	h := sha256.New()
	var buf [96]byte
	for i, r := range rules {
		if i%digestPart == digestPart-1 {
			for _, pause := range pauses {
				pause(digestPart)
			}
		}
		each(i, &rules[i])
		action := byte(r.Action)
		if r.Audit {
			action |= auditBit
		}
		b := append(buf[:0], action, byte(r.Protocol))
		b = appendNet(b, r.Src)
		b = appendNet(b, r.Dst)
		for _, p := range []api.PortRange{r.SrcPort, r.DstPort} {
			b = binary.BigEndian.AppendUint16(b, p.First)
			b = binary.BigEndian.AppendUint16(b, p.Last)
		}
		write(h, b)
	}
	var d Digest
	copy(d[:], h.Sum(buf[:0]))
	return d
}

func appendNet(b []byte, n api.Net) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(n.Set))
	return appendPrefix(b, n.Prefix)
}

// appendPrefix appends the prefix length and the address. The prefix length of an invalid prefix is
// -1; the length of the address distinguishes the families.
func appendPrefix(b []byte, p netip.Prefix) []byte {
	addr := p.Addr().AsSlice()
	b = append(b, byte(p.Bits()), byte(len(addr)))
	return append(b, addr...)
}

// write cannot fail: hashes never return an error.
func write(h hash.Hash, b []byte) { _, _ = h.Write(b) }
