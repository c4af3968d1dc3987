package expand

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// maxTable is the maximum number of entries of one table.
const maxTable = 1_000_000

// Expander expands rules.
type Expander struct {
	nets   *cache.Nets
	enough func(api.Protocol) int // see factor
	Coarse bool                   // SCTP ports are not matched: VPP parses only those of TCP and UDP
}

// New returns an Expander. aggregated is as for cache.NewNets.
func New(aggregated func(api.SetID) cache.Families) *Expander {
	return &Expander{nets: cache.NewNets(aggregated), enough: enough}
}

// Expand expands the rules first..last-1 of a table.
func (x *Expander) Expand(t *cache.Table, first, last int) (entries.List, error) {
	lines := factorProducts(x.linesOf(t.Rules, first, last), x.enough)
	total := sum(lines)
	if total > maxTable {
		return entries.List{}, fmt.Errorf("table %s: more than %d: %w", t.Name(), maxTable, entries.ErrTooLarge)
	}
	return emit(lines, total, t.Parts != nil), nil
}

// emit returns the entries of lines.
func emit(lines []line, total int, bySource bool) entries.List {
	// Pods share the global table, and each of its lists has few sources. A local table has few
	// destinations.
	out := emission{hidden: newShadowIndex(lines), bySource: bySource}
	out.Entries, out.Rules = make([]entries.Entry, 0, total), make([]int32, 0, total)
	for i := range lines {
		out.add(&lines[i])
	}
	return out.List
}

// Bound limits the entries of a namespace's pods, and of all pods: before shadowed ones are left
// out.
var Bound = cache.Bound{Namespace: 1 << 18, Total: 1 << 20, List: 1 << 16, Entries: func(rules []api.ContivRule, _ bool, nets *cache.Nets) int {
	x := Expander{nets: nets, enough: enough}
	return sum(factorProducts(x.linesOf(rules, 0, len(rules)), x.enough))
}}

// sum returns the number of entries of lines.
func sum(lines []line) (n int) {
	for i := range lines {
		n += lines[i].size()
	}
	return n
}

// linesOf converts the rules first..last-1 to lines, in order. It leaves out rules without entries,
// unless they begin a run.
func (x *Expander) linesOf(rules []api.ContivRule, first, last int) []line {
	hasAddresses := func(n nets) bool {
		src, dst := x.nets.Has(n.src), x.nets.Has(n.dst)
		return src[0] && dst[0] || src[1] && dst[1]
	}
	merged, count := mergePorts(rules[first:last], hasAddresses), 0
	for i := range merged {
		if merged[i].leader == i {
			count++
		}
	}
	out := make([]line, 0, count)
	for i, m := range merged {
		if m.leader != i {
			continue
		}
		r := rules[first+i]
		l := line{rule: int32(first + i), audit: r.Audit, net: nets{r.Src, r.Dst}, traffic: traffic{protocol: r.Protocol, dport: m.ports}}
		l.sport.First, l.sport.Last = r.SrcPort.Bounds()
		if r.Action == api.Permit {
			l.verdict = entries.Reflect
		}
		if x.Coarse && l.protocol == api.SCTP && (l.sport != entries.AnyPorts || l.dport != entries.AnyPorts) {
			if r.Action == api.Permit {
				continue
			}
			l.sport, l.dport = entries.AnyPorts, entries.AnyPorts
		}
		l.src, l.dst = x.nets.Of(r.Src), x.nets.Of(r.Dst)
		out = append(out, l)
	}
	return out
}

// emission is an expansion in progress.
type emission struct {
	entries.List
	nets     []entries.Net // of the many addresses of a line
	hidden   *shadowIndex
	bySource bool // sources are fewer than destinations
}

// add appends the entries of a line that are not shadowed.
func (out *emission) add(l *line) {
	few, many := l.dst, l.src
	if out.bySource {
		few, many = many, few
	}
	e := entries.Entry{Verdict: l.verdict, Protocol: l.protocol, SrcPort: l.sport, DstPort: l.dport}
	out.hidden.begin(l)
	for family := range entries.Families {
		out.nets = entries.NetsOf(out.nets[:0], many[family])
		for _, f := range few[family] {
			out.hidden.moveTo(f)
			one := entries.NetOf(f)
			for i, m := range many[family] {
				if out.hidden.isShadowed(m) {
					continue
				}
				if e.Src, e.Dst = out.nets[i], one; out.bySource {
					e.Src, e.Dst = one, out.nets[i]
				}
				out.Entries = append(out.Entries, e)
				out.Rules = append(out.Rules, l.rule)
			}
		}
	}
}
