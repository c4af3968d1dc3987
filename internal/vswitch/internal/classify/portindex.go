package classify

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// fewEntries is the number of rules of a bucket up to which a linear search is used instead of an
// index of protocols and ports.
const fewEntries = 12

// portIndex finds the first rule of a large bucket by protocol and ports.
type portIndex struct {
	anyProto uint32 // the rule for any protocol, at most one per bucket
	protos   []protoIndex
}

// protoIndex holds the rules of one protocol. Rules that restrict one port only are found by binary
// search; the others, which restrict both ports or TCP flags, are compared in order.
type protoIndex struct {
	proto        api.Protocol
	first        uint32 // lowest rule; it decides for fragments
	dport, sport intervals
	rest         []entry
}

func newPortIndex(entries []entry) portIndex {
	x := portIndex{anyProto: NoRule}
	byProto := make(map[api.Protocol][]entry)
	for _, e := range entries {
		if e.proto == api.AnyProtocol {
			x.anyProto = e.rule
			continue
		}
		byProto[e.proto] = append(byProto[e.proto], e)
	}
	for proto, list := range byProto {
		x.protos = append(x.protos, newProtoIndex(proto, list))
	}
	slices.SortFunc(x.protos, func(a, b protoIndex) int { return int(a.proto) - int(b.proto) })
	return x
}

func newProtoIndex(proto api.Protocol, entries []entry) protoIndex {
	x := protoIndex{proto: proto, first: entries[0].rule}
	var byDst, bySrc []painted
	for _, e := range entries {
		switch {
		case e.mask|e.value != 0:
			x.rest = append(x.rest, e)
		case e.sport.isAny():
			byDst = append(byDst, painted{e.dport, e.rule})
		case e.dport.isAny():
			bySrc = append(bySrc, painted{e.sport, e.rule})
		default:
			x.rest = append(x.rest, e)
		}
	}
	x.dport, x.sport = newIntervals(byDst), newIntervals(bySrc)
	return x
}

func (x *portIndex) lookup(t *Tuple) uint32 {
	for i := range x.protos {
		if p := &x.protos[i]; p.proto == t.Protocol {
			return min(x.anyProto, p.lookup(t))
		}
	}
	return x.anyProto
}

func (x *protoIndex) lookup(t *Tuple) uint32 {
	if t.Fragment {
		return x.first
	}
	best := min(x.dport.lookup(t.DstPort), x.sport.lookup(t.SrcPort))
	for i := range x.rest {
		e := &x.rest[i]
		if e.rule >= best {
			break
		}
		if e.matches(t) {
			return e.rule
		}
	}
	return best
}

// painted is a range and its rule.
type painted struct {
	Range
	rule uint32
}

// intervals splits the ports into intervals, each with its first rule.
type intervals struct {
	starts []uint16 // sorted, the first is 0; empty if there are no rules
	rules  []uint32 // NoRule without a rule
}

// newIntervals takes ranges in the order of their rules. A piece belongs to the first range that
// contains it: ranges are painted in order, and free links a piece to the next unpainted one, so
// that every piece is painted once.
func newIntervals(ranges []painted) intervals {
	if len(ranges) == 0 {
		return intervals{}
	}
	starts := []uint16{0}
	for _, r := range ranges {
		starts = append(starts, r.First)
		if r.Last < 65535 {
			starts = append(starts, r.Last+1)
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	v := intervals{starts: starts, rules: make([]uint32, len(starts))}
	free := make([]int, len(starts)+1)
	for i := range free {
		free[i] = i
	}
	for i := range v.rules {
		v.rules[i] = NoRule
	}
	for _, r := range ranges {
		i, _ := slices.BinarySearch(starts, r.First)
		for i = nextFree(free, i); i < len(starts) && starts[i] <= r.Last; i = nextFree(free, i) {
			v.rules[i] = r.rule
			free[i] = i + 1
		}
	}
	return v
}

// nextFree follows free from i and compresses the path.
func nextFree(free []int, i int) int {
	for free[i] != i {
		free[i] = free[free[i]]
		i = free[i]
	}
	return i
}

func (v *intervals) lookup(port uint16) uint32 {
	lo, hi := 0, len(v.starts)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); v.starts[mid] <= port {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return NoRule
	}
	return v.rules[lo-1]
}
