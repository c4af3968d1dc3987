package compile

import (
	"container/heap"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// choice is a range of ports and the rule that decides about it unless an earlier one does.
type choice struct {
	first, last uint16
	rule        int // place in the list
}

// firstOf returns which rule is the first for every port. Choices are in the order of
// their rules; ports without one get none.
func firstOf(choices []choice, none uint32, verdict func(rule int) uint32) runs {
	starts := make([]int, 0, 2*len(choices)+1)
	starts = append(starts, 0)
	for _, c := range choices {
		starts = append(starts, int(c.first), int(c.last)+1)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	byFirst := slices.Clone(choices)
	slices.SortStableFunc(byFirst, func(a, b choice) int { return int(a.first) - int(b.first) })

	var out runs
	var live active
	for _, at := range starts {
		if at >= rootKeys {
			break
		}
		for len(byFirst) > 0 && int(byFirst[0].first) <= at {
			heap.Push(&live, byFirst[0])
			byFirst = byFirst[1:]
		}
		for len(live) > 0 && int(live[0].last) < at {
			heap.Pop(&live)
		}
		if len(live) == 0 {
			out.from(at, none)
			continue
		}
		out.from(at, verdict(live[0].rule))
	}
	return out
}

// active is a heap of choices, the first rule on top.
type active []choice

func (a active) Len() int           { return len(a) }
func (a active) Less(i, j int) bool { return a[i].rule < a[j].rule }
func (a active) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *active) Push(x any)        { *a = append(*a, x.(choice)) }
func (a *active) Pop() any {
	l := *a
	last := l[len(l)-1]
	*a = l[:len(l)-1]
	return last
}

// placeOf returns where a row has the cell of a protocol.
func placeOf(p api.Protocol) int {
	switch p {
	case api.TCP:
		return placeTCP
	case api.UDP:
		return placeUDP
	case api.SCTP:
		return placeSCTP
	default:
		return placeOther
	}
}

var placeProtocol = [placeOther]api.Protocol{placeTCP: api.TCP, placeUDP: api.UDP, placeSCTP: api.SCTP}

// choices returns what rules say at a place of a row: by destination port, for those that
// hold a source port, or by protocol number.
func choices(rules []api.ContivRule, of []int, place int, source uint16) []choice {
	var out []choice
	for _, i := range of {
		r := rules[i]
		switch {
		case place == placeOther && r.Protocol == api.AnyProtocol:
			out = append(out, choice{0, 65535, i})
		case place == placeOther && !r.Protocol.HasPorts():
			out = append(out, choice{uint16(r.Protocol), uint16(r.Protocol), i})
		case place != placeOther && (r.Protocol == api.AnyProtocol || r.Protocol == placeProtocol[place]) && r.SrcPort.Contains(source):
			first, last := r.DstPort.Bounds()
			out = append(out, choice{first, last, i})
		}
	}
	return out
}

// sources returns the source ports at which what rules say about a protocol may change.
func sources(rules []api.ContivRule, of []int, place int) []uint16 {
	out := []uint16{0}
	for _, i := range of {
		if r := rules[i]; place != placeOther && r.Protocol == placeProtocol[place] && !r.SrcPort.IsAny() {
			out = append(out, r.SrcPort.First)
			if r.SrcPort.Last < 65535 {
				out = append(out, r.SrcPort.Last+1)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
