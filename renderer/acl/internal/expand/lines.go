package expand

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// line is a number of entries that differ in their addresses only: every source of
// a family with every destination of it.
type line struct {
	rule     int32 // index of the first of the table's rules that it stands for
	verdict  entries.Verdict
	src, dst cache.Families
	net      nets // what src and dst were made of
	traffic
}

// nets are the addresses that a rule names.
type nets struct{ src, dst api.Net }

// traffic is what an entry says beside its addresses.
type traffic struct {
	protocol     api.Protocol
	sport, dport entries.Ports
}

// size returns how many entries there are in the line.
func (l *line) size() int { return len(l.src[0])*len(l.dst[0]) + len(l.src[1])*len(l.dst[1]) }

// contains reports whether everything that o matches is matched. Entries for any
// protocol do not look at ports.
func (t traffic) contains(o traffic) bool {
	return t.protocol == api.AnyProtocol || t.protocol == o.protocol && t.sport.Contains(o.sport) && t.dport.Contains(o.dport)
}

// everyTraffic reports whether all traffic is matched.
func (t traffic) everyTraffic() bool { return t.protocol == api.AnyProtocol }

// mergedPorts says in which line the destination ports of a rule are.
type mergedPorts struct {
	leader int           // index of the first rule of the line
	ports  entries.Ports // of the line
}

// shape is what rules must have in common for their destination ports to be merged.
type shape struct {
	run      int // counts the changes between permit and deny
	nets     nets
	protocol api.Protocol
	sport    api.PortRange
}

func shapesOf(rules []api.ContivRule) []shape {
	out := make([]shape, len(rules))
	run := 0
	for i, r := range rules {
		if i > 0 && r.Action != rules[i-1].Action {
			run++
		}
		out[i] = shape{run, nets{r.Src, r.Dst}, r.Protocol, r.SrcPort}
	}
	return out
}

// mergePorts merges the destination ports of rules that differ in nothing else and
// that no rule of the other action stands between: their order does not matter.
// Ports that overlap or are neighbours become one range, in the place of the first
// of these rules.
func mergePorts(rules []api.ContivRule) []mergedPorts {
	out := make([]mergedPorts, len(rules))
	byShape := make(map[shape][]int, len(rules))
	for i, s := range shapesOf(rules) {
		out[i].leader = i
		out[i].ports.First, out[i].ports.Last = rules[i].DstPort.Bounds()
		byShape[s] = append(byShape[s], i)
	}
	for _, same := range byShape {
		if len(same) > 1 {
			mergeSame(out, same)
		}
	}
	return out
}

// mergeSame merges those of the given rules whose ports touch.
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

// countedWith returns, for every rule of a table, the rule whose entries stand for
// it: itself, or one before it that it was merged with. It is -1 where nothing does:
// the rule names an empty set, or can never match. own says which rules entries come
// from.
//
// It needs to know no more: a rule shares entries with rules of its shape only, the
// first of all when their ports were turned into gaps, else the first of those whose
// ports it was merged with.
func countedWith(rules []api.ContivRule, own []bool) []int {
	out := make([]int, len(rules))
	first := make(map[shape]int, len(rules))
	merged := mergePorts(rules)
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

// CountedWith returns for every rule of a table whose entries stand for it, see
// countedWith; pieces are the rules of its entries.
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
