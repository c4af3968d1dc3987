package acl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// ErrTooLarge is returned when a table is larger than VPP can be asked to hold.
// The pods keep the rules they have. It is a renderer.Refusal, unless it comes with
// errMayPass.
var ErrTooLarge = renderer.Refusal("too many entries")

// errMayPass goes with ErrTooLarge where others may make room at any moment, which nothing
// notifies the renderer of: such a commit is tried again.
var errMayPass = errors.New("others may make room, so it is tried again")

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
	rules   []int32 // per entry, the index of the first of the table's rules that it stands for
}

// expander expands rules, remembering the prefixes of sets.
type expander struct {
	nets   *cache.Nets
	enough func(api.Protocol) int // see factor
	coarse bool                   // ports of SCTP are not matched, see embeddedVersion
}

func newExpander(members func(api.SetID) []netip.Prefix) *expander {
	return &expander{nets: cache.NewNets(members), enough: enough}
}

// expand expands the rules first..last-1 of a table.
func (x *expander) expand(t *cache.Table, first, last int) (expansion, error) {
	lines := factor(x.linesOf(t.Rules, first, last), x.enough)
	total := 0
	for i := range lines {
		if total += lines[i].size(); total > maxTable {
			return expansion{}, fmt.Errorf("table %s: more than %d: %w", t.Name(), maxTable, ErrTooLarge)
		}
	}
	// Pods share the global table, each list of which is about few sources; a local
	// table is about few destinations.
	out := emission{hidden: newCover(lines), bySource: t.Parts != nil}
	out.entries, out.rules = make([]entry, 0, total), make([]int32, 0, total)
	for i := range lines {
		out.add(&lines[i])
	}
	return out.expansion, nil
}

// linesOf returns the rules first..last-1 as lines, in order.
func (x *expander) linesOf(rules []api.ContivRule, first, last int) []line {
	out := make([]line, 0, last-first)
	for i, m := range mergePorts(rules[first:last]) {
		if m.leader != i {
			continue
		}
		r := rules[first+i]
		l := line{rule: int32(first + i), net: nets{r.Src, r.Dst}, traffic: traffic{protocol: r.Protocol, dport: m.ports}}
		l.sport.first, l.sport.last = r.SrcPort.Bounds()
		if r.Action == api.Permit {
			l.verdict = reflect
		}
		if x.coarse && l.protocol == api.SCTP && (l.sport != anyPorts || l.dport != anyPorts) {
			if r.Action == api.Permit {
				continue
			}
			l.sport, l.dport = anyPorts, anyPorts
		}
		l.src, l.dst = x.nets.Of(r.Src), x.nets.Of(r.Dst)
		out = append(out, l)
	}
	return out
}

// emission is an expansion in the making.
type emission struct {
	expansion
	hidden   *cover
	bySource bool // there are fewer sources than destinations
}

// add appends the entries of a line that nothing before them hides.
func (out *emission) add(l *line) {
	few, many := l.dst, l.src
	if out.bySource {
		few, many = many, few
	}
	e := entry{verdict: l.verdict, protocol: l.protocol, sport: l.sport, dport: l.dport}
	out.hidden.begin(l)
	for family := range families {
		for _, f := range few[family] {
			out.hidden.at(f)
			for _, m := range many[family] {
				if out.hidden.hides(m) {
					continue
				}
				if e.src, e.dst = m, f; out.bySource {
					e.src, e.dst = f, m
				}
				out.entries = append(out.entries, e)
				out.rules = append(out.rules, l.rule)
			}
		}
	}
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
