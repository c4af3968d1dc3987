package expand

import (
	"cmp"
	"iter"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// line is a group of entries that differ only in their addresses: each source of a family with each
// destination of that family.
type line struct {
	rule     int32 // index of the first table rule that it represents
	verdict  entries.Verdict
	audit    bool // of the rule: it is counted apart
	src, dst cache.Families
	net      nets // the nets that src and dst come from
	traffic
}

// nets are the source and the destination of a rule.
type nets struct{ src, dst api.Net }

// traffic is what an entry matches, apart from its addresses.
type traffic struct {
	protocol     api.Protocol
	sport, dport entries.Ports
}

// size returns the number of entries in the line.
func (l *line) size() int { return len(l.src[0])*len(l.dst[0]) + len(l.src[1])*len(l.dst[1]) }

// contains reports whether t matches everything that o matches. Entries for any protocol ignore
// ports.
func (t traffic) contains(o traffic) bool {
	return t.protocol == api.AnyProtocol || t.protocol == o.protocol && t.sport.Contains(o.sport) && t.dport.Contains(o.dport)
}

// everyTraffic reports whether t matches all traffic.
func (t traffic) everyTraffic() bool { return t.protocol == api.AnyProtocol }

// mergedPorts is the line to which the destination ports of a rule belong.
type mergedPorts struct {
	leader int           // index of the first rule of the line
	ports  entries.Ports // of the line
}

// shape is what rules must have in common to have their destination ports merged.
type shape struct {
	run      int // number of changes between permit, audited permit and deny so far
	nets     nets
	protocol api.Protocol
	sport    api.PortRange
}

// shapesOf yields the shape of every rule, with its index.
func shapesOf(rules []api.ContivRule) iter.Seq2[int, shape] {
	return func(yield func(int, shape) bool) {
		run := 0
		for i, r := range rules {
			if i > 0 && (r.Action != rules[i-1].Action || r.Audit != rules[i-1].Audit) {
				run++
			}
			if !yield(i, shape{run, nets{r.Src, r.Dst}, r.Protocol, r.SrcPort}) {
				return
			}
		}
	}
}

// mergePorts merges the destination ports of rules that differ in nothing else and have no rule of
// the other action between them: their order does not matter. Overlapping or adjacent ports become
// one range at the position of the first of these rules. A rule whose nets do not matter has no
// leader, unless it begins a run.
func mergePorts(rules []api.ContivRule, matters func(nets) bool) []mergedPorts {
	out := make([]mergedPorts, len(rules))
	shapes := newRepeats[shape](len(rules))
	runs := -1
	for i, s := range shapesOf(rules) {
		if out[i].leader = -1; s.run == runs && !matters(s.nets) {
			shapes.skip()
			continue
		}
		runs = s.run
		out[i].leader = i
		out[i].ports.First, out[i].ports.Last = rules[i].DstPort.Bounds()
		shapes.add(s)
	}
	for _, same := range shapes.all() {
		mergeSame(out, same)
	}
	return out
}

// mergeSame merges the given rules with touching ports.
func mergeSame(all []mergedPorts, same []int) {
	slices.SortFunc(same, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[a].ports.First, all[b].ports.First), cmp.Compare(a, b))
	})
	for start := 0; start < len(same); {
		m, end := all[same[start]], start+1
		for ; end < len(same) && int(all[same[end]].ports.First) <= int(m.ports.Last)+1; end++ {
			m.leader = min(m.leader, same[end])
			m.ports.Last = max(m.ports.Last, all[same[end]].ports.Last)
		}
		for _, i := range same[start:end] {
			all[i] = m
		}
		start = end
	}
}

// countedWith returns, for every rule of a table, the rule whose entries represent it: itself, or
// an earlier rule with which it was merged. It is -1 for a rule without entries, which names an
// empty set or can never match. own is whether entries come from a rule.
//
// This is sufficient: a rule shares entries only with rules of its shape. These belong to the first
// such rule when ports were replaced by their complement, and otherwise to the first rule with
// which the ports were merged.
func countedWith(rules []api.ContivRule, own []bool) []int {
	out := make([]int, len(rules))
	first := make(map[shape]int, len(rules))
	merged := mergePorts(rules, func(nets) bool { return true })
	for i, s := range shapesOf(rules) {
		if _, ok := first[s]; !ok {
			first[s] = i
		}
		switch {
		case own[i]:
			out[i] = i
		case own[merged[i].leader]:
			out[i] = merged[i].leader
		case own[first[s]]:
			out[i] = first[s]
		default:
			out[i] = -1
		}
	}
	return out
}

// CountedWith returns, for every rule of a table, the rule whose entries represent it; see
// countedWith. pieces are the rules of the table's entries.
func CountedWith(t *cache.Table, pieces [][]int32) []int {
	own := make([]bool, len(t.Rules))
	for _, rules := range pieces {
		for _, rule := range rules {
			if rule >= 0 && int(rule) < len(own) {
				own[rule] = true
			}
		}
	}
	return countedWith(t.Rules, own)
}
