package acl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

// ErrTooLarge is returned when a table is larger than VPP can be asked to hold.
// The pods keep the rules they have.
var ErrTooLarge = errors.New("too many entries")

const (
	// maxEntries is how many entries one ACL may have: VPP aborts when it is asked
	// to dump an ACL that exceeds its 16 MB API segment.
	maxEntries = 16_000
	// maxTable is how many entries one table may have altogether.
	maxTable = 1_000_000
)

// expansion is a table, or a part of one, as VPP entries.
type expansion struct {
	entries []entry
	rules   []int32 // per entry, the index of the table's rule that it comes from
}

// expander expands rules, remembering the prefixes of sets.
type expander struct {
	members func(api.SetID) []netip.Prefix
	sets    map[api.SetID]sides
}

// sides are the prefixes of a net by family.
type sides [2][]netip.Prefix

var anySides = sides{{anyIPv4}, {anyIPv6}}

func newExpander(members func(api.SetID) []netip.Prefix) *expander {
	return &expander{members: members, sets: make(map[api.SetID]sides)}
}

// sidesOf returns the fewest prefixes that hold exactly the addresses of a net.
func (x *expander) sidesOf(n api.Net) sides {
	switch {
	case n.Set != 0:
		s, ok := x.sets[n.Set]
		if !ok {
			s = split(cache.Aggregate(slices.Clone(x.members(n.Set))))
			x.sets[n.Set] = s
		}
		return s
	case n.Prefix.IsValid():
		return split([]netip.Prefix{n.Prefix.Masked()})
	}
	return anySides
}

// split divides sorted prefixes by family; IPv4 comes first.
func split(sorted []netip.Prefix) sides {
	i := slices.IndexFunc(sorted, func(p netip.Prefix) bool { return !p.Addr().Is4() })
	if i < 0 {
		i = len(sorted)
	}
	return sides{sorted[:i], sorted[i:]}
}

// expand expands the rules first..last-1 of a table.
func (x *expander) expand(t *cache.Table, first, last int) (expansion, error) {
	var out expansion
	shadow := newShadow(t.Rules[first:last])
	for i := first; i < last; i++ {
		r := t.Rules[i]
		src, dst := x.sidesOf(r.Src), x.sidesOf(r.Dst)
		count := len(src[0])*len(dst[0]) + len(src[1])*len(dst[1])
		if len(out.entries)+count > maxTable {
			return expansion{}, fmt.Errorf("table %s: more than %d: %w", t.Name(), maxTable, ErrTooLarge)
		}
		out.entries = slices.Grow(out.entries, count)
		out.rules = slices.Grow(out.rules, count)
		for family := range families {
			for _, d := range dst[family] {
				for _, s := range src[family] {
					e := makeEntry(r, s, d)
					if !shadow.hides(&e) {
						out.entries = append(out.entries, e)
						out.rules = append(out.rules, int32(i))
					}
				}
			}
		}
	}
	return out, nil
}

func makeEntry(r api.ContivRule, src, dst netip.Prefix) entry {
	e := entry{src: src, dst: dst, protocol: r.Protocol}
	e.sport.first, e.sport.last = r.SrcPort.Bounds()
	e.dport.first, e.dport.last = r.DstPort.Bounds()
	if r.Action == api.Permit {
		e.verdict = reflect
	}
	return e
}

// shadow finds entries that an earlier one with the same ports hides. It looks
// only at ports that several rules have: the members of one set do not hide each
// other.
type shadow struct {
	repeated map[traffic]bool
	seen     map[kind]*bart.Lite
}

// traffic is what an entry says beside its addresses.
type traffic struct {
	protocol     api.Protocol
	sport, dport ports
}

// kind is what entries must have in common for one to hide the other by its source.
type kind struct {
	dst netip.Prefix
	traffic
}

func trafficOf(e *entry) traffic { return traffic{e.protocol, e.sport, e.dport} }

func newShadow(rules []api.ContivRule) shadow {
	once := make(map[traffic]bool, len(rules))
	s := shadow{repeated: make(map[traffic]bool), seen: make(map[kind]*bart.Lite)}
	for _, r := range rules {
		e := makeEntry(r, netip.Prefix{}, netip.Prefix{})
		k := trafficOf(&e)
		s.repeated[k] = once[k]
		once[k] = true
	}
	return s
}

// hides says whether the entry can never match, and remembers it otherwise.
func (s shadow) hides(e *entry) bool {
	if !s.repeated[trafficOf(e)] {
		return false
	}
	k := kind{e.dst, trafficOf(e)}
	t := s.seen[k]
	if t == nil {
		t = new(bart.Lite)
		s.seen[k] = t
	}
	if t.LookupPrefix(e.src) {
		return true
	}
	t.Insert(e.src)
	return false
}

// piece is the content of one ACL.
type piece struct {
	digest  digest
	count   int     // of entries
	entries []entry // forgotten once they are installed, unless several ACLs may change together
	rules   []int32 // nil where the entries come from no table
}

func newPiece(entries []entry, rules []int32) piece {
	return piece{digest: digestOf(entries), count: len(entries), entries: entries, rules: rules}
}

// cut divides an expansion into pieces that VPP can hold. Where it is cut depends
// on the entries alone, so that an entry that comes or goes changes one piece.
func cut(x expansion) []piece {
	if len(x.entries) <= maxEntries {
		return []piece{newPiece(x.entries, x.rules)}
	}
	var out []piece
	for start := 0; start < len(x.entries); {
		end := min(start+maxEntries, len(x.entries))
		for i := start + maxEntries/4; i < end; i++ {
			if isBoundary(&x.entries[i]) {
				end = i
				break
			}
		}
		out = append(out, newPiece(x.entries[start:end:end], x.rules[start:end:end]))
		start = end
	}
	return out
}

// isBoundary is true for about one entry in 4 000, by its content.
func isBoundary(e *entry) bool {
	var buf [64]byte
	h := uint32(2166136261)
	for _, b := range e.append(buf[:0]) {
		h = (h ^ uint32(b)) * 16777619
	}
	return h%4001 == 0
}
