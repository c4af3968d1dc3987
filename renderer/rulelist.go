package renderer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
)

// Digest identifies the content of a rule list or a table. Equal rules in equal order have equal
// digests; origins are not included.
type Digest [16]byte

// String returns the first eight bytes in hexadecimal, for display.
func (d Digest) String() string { return hex.EncodeToString(d[:8]) }

// RuleList is an immutable ordered list of rules. The first match decides. The list of
// administrators' policies may have a million rules, so it takes 16 bytes for each.
type RuleList struct {
	rows    rows
	sides   []sides        // of rows
	origins [][]api.Origin // of rows; nil: rules have none
	digest  Digest
	summary summary
	flat    atomic.Pointer[[]api.ContivRule] // what Rules returns; nil until needed
}

// row is a rule without pointers.
type row struct {
	sides, origins uint32 // indexes in the list
	first, last    uint16 // destination ports
	protocol       api.Protocol
	action         api.Action
	audit          bool
}

// rows are the rows of a list, in parts: nothing needs memory for a million at once.
type rows struct {
	parts [][]row // full but for the last
	count int
}

const rowsPart = 1 << 12

func (x *rows) at(i int) *row { return &x.parts[i/rowsPart][i%rowsPart] }

// reserve makes room for about n rows: for all if they are few.
func (x *rows) reserve(n int) {
	x.parts = make([][]row, 1, n/rowsPart+1)
	x.parts[0] = make([]row, 0, min(n, rowsPart))
}

func (x *rows) add(r row) {
	last := x.count / rowsPart
	if last == len(x.parts) {
		x.parts = append(x.parts, nil)
		if last > 0 {
			x.parts[last] = make([]row, 0, rowsPart)
		}
	}
	x.parts[last] = append(x.parts[last], r)
	x.count++
}

// fit frees most of the memory that no row takes.
func (x *rows) fit() {
	if last := len(x.parts) - 1; last >= 0 {
		x.parts[last] = fitted(x.parts[last])
	}
}

func (x *rows) clone() rows {
	out := rows{make([][]row, len(x.parts)), x.count}
	for i, p := range x.parts {
		out.parts[i] = slices.Clone(p)
	}
	return out
}

// sides is what few rules distinguishes from many others: the two sides and the source port.
type sides struct {
	src, dst api.Net
	srcPort  api.PortRange
}

// summary is what renderers ask of every list, so that they need not look at all rules.
type summary struct {
	open, restricts bool // a rule has permitted everything; one before it does not only permit
	unusual         []int32
}

// add adds the i-th rule.
func (s *summary) add(i int, r *row, of *sides) {
	anyPort := api.PortRange{First: r.first, Last: r.last}.IsAny()
	everything := *of == sides{} && r.protocol == api.AnyProtocol && anyPort
	s.restricts = s.restricts || !s.open && (r.action == api.Deny || r.audit)
	s.open = s.open || everything && r.action == api.Permit && !r.audit
	usual := r.protocol == api.TCP || r.protocol == api.UDP
	if !usual && (r.protocol != api.AnyProtocol || !anyPort) || !of.srcPort.IsAny() || r.first != r.last {
		s.unusual = append(s.unusual, int32(i))
	}
}

// NewRuleList takes ownership of rules. origins[i] lists the origins of rules[i]; origins is as
// long as rules, or nil.
func NewRuleList(rules []api.ContivRule, origins [][]api.Origin) *RuleList {
	var w RuleWriter
	w.Reserve(len(rules), 0)
	known := map[sides]int{}
	for i, r := range rules {
		s := sides{r.Src, r.Dst, r.SrcPort}
		at, ok := known[s]
		if !ok {
			at = w.addSides(s)
			known[s] = at
		}
		var of []api.Origin
		if origins != nil {
			of = origins[i]
		}
		w.Write(r, at, of)
	}
	l := w.Finish()
	l.flat.Store(&rules)
	return l
}

// Len returns the number of rules, 0 for a nil list.
func (l *RuleList) Len() int {
	if l == nil {
		return 0
	}
	return l.rows.count
}

// At returns the i-th rule.
func (l *RuleList) At(i int) api.ContivRule {
	r := l.rows.at(i)
	s := &l.sides[r.sides]
	return api.ContivRule{
		Action: r.action, Src: s.src, Dst: s.dst, Protocol: r.protocol, SrcPort: s.srcPort,
		DstPort: api.PortRange{First: r.first, Last: r.last}, Audit: r.audit,
	}
}

// All returns the rules in order, none for a nil list.
func (l *RuleList) All() iter.Seq2[int, api.ContivRule] {
	return func(yield func(int, api.ContivRule) bool) {
		for i := range l.Len() {
			if !yield(i, l.At(i)) {
				return
			}
		}
	}
}

// Rules returns the rules, none for a nil list. The caller must not change them. The list keeps
// them from then on, which takes six times its memory: All does not.
func (l *RuleList) Rules() []api.ContivRule {
	if l == nil {
		return nil
	}
	if flat := l.flat.Load(); flat != nil {
		return *flat
	}
	rules := make([]api.ContivRule, l.Len())
	for i := range rules {
		rules[i] = l.At(i)
	}
	l.flat.CompareAndSwap(nil, &rules)
	return *l.flat.Load()
}

// Origins returns the origins of the i-th rule.
func (l *RuleList) Origins(i int) []api.Origin {
	if l == nil || l.origins == nil {
		return nil
	}
	return l.origins[l.rows.at(i).origins]
}

// AllOrigins returns the origins of all rules, once where several rules have the same. The caller
// must not change them.
func (l *RuleList) AllOrigins() [][]api.Origin {
	if l == nil {
		return nil
	}
	return l.origins
}

// Restricts reports whether the list can deny or audit anything. A nil list, or one that permits
// everything before it does, restricts nothing.
func (l *RuleList) Restricts() bool {
	return l != nil && (l.summary.restricts || !l.summary.open)
}

// Unusual returns the rules that some dataplanes cannot express, with their indexes: those of other
// protocols than TCP and UDP, with source ports, or with several destination ports.
func (l *RuleList) Unusual() iter.Seq2[int, api.ContivRule] {
	return func(yield func(int, api.ContivRule) bool) {
		if l == nil {
			return
		}
		for _, i := range l.summary.unusual {
			if !yield(int(i), l.At(int(i))) {
				return
			}
		}
	}
}

// WithOrigins returns the list with the origins of another one added, which has equal rules.
func (l *RuleList) WithOrigins(o *RuleList) *RuleList {
	if l == nil || o == nil || l == o {
		return cmp.Or(l, o)
	}
	out := &RuleList{rows: l.rows.clone(), sides: l.sides, digest: l.digest, summary: l.summary}
	out.flat.Store(l.flat.Load())
	known := map[[2]uint32]uint32{} // merged origins, by those that were merged
	for i := range out.Len() {
		r := out.rows.at(i)
		of := [2]uint32{r.origins, o.rows.at(i).origins}
		at, ok := known[of]
		if !ok {
			at = uint32(len(out.origins))
			known[of] = at
			out.origins = append(out.origins, mergeOrigins(l.Origins(i), o.Origins(i)))
		}
		r.origins = at
	}
	return out
}

// mergeOrigins returns the origins of both.
func mergeOrigins(a, b []api.Origin) []api.Origin {
	if slices.Equal(a, b) {
		return a
	}
	both := slices.Concat(a, b)
	slices.SortFunc(both, api.Origin.Compare)
	if both = slices.Compact(both); len(both) == len(a) {
		return a
	}
	return both
}

// MarshalJSON encodes each rule with its origins.
func (l *RuleList) MarshalJSON() ([]byte, error) {
	type rule struct {
		Rule    api.ContivRule `json:"rule"`
		Origins []api.Origin   `json:"origins"`
	}
	out := make([]rule, l.Len())
	for i, r := range l.All() {
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
	h := sha256.New()
	var buf [96]byte
	for i := range rules {
		r := &rules[i]
		s := sides{r.Src, r.Dst, r.SrcPort}
		b := appendStart(buf[:0], r.Action, r.Audit, r.Protocol)
		write(h, appendPorts(s.append(b), r.DstPort))
	}
	return sumOf(h)
}

// A rule in a digest: its start, its sides and its destination ports.
func appendStart(b []byte, action api.Action, audit bool, protocol api.Protocol) []byte {
	start := byte(action)
	if audit {
		start |= auditBit
	}
	return append(b, start, byte(protocol))
}

func (s *sides) append(b []byte) []byte {
	return appendPorts(appendNet(appendNet(b, s.src), s.dst), s.srcPort)
}

func appendPorts(b []byte, p api.PortRange) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.First), p.Last)
}

func sumOf(h hash.Hash) (d Digest) {
	copy(d[:], h.Sum(nil))
	return d
}

func appendNet(b []byte, n api.Net) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(n.Set))
	return appendPrefix(b, n.Prefix)
}

// appendPrefix appends the prefix length and the address. The prefix length of an invalid prefix is
// -1; the length of the address distinguishes the families.
func appendPrefix(b []byte, p netip.Prefix) []byte {
	b = append(b, byte(p.Bits()), byte(p.Addr().BitLen()/8))
	switch a := p.Addr(); {
	case a.Is4():
		of := a.As4()
		return append(b, of[:]...)
	case a.Is6():
		of := a.As16()
		return append(b, of[:]...)
	}
	return b
}

// write cannot fail: hashes never return an error.
func write(h hash.Hash, b []byte) { _, _ = h.Write(b) }
