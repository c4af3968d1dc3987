package compile

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// choice is a range of ports and the rule that decides about it unless an earlier rule does. It
// packs the first port, the index of the rule, and the last port, in this order, so that choices
// sort by first port.
type choice uint64

func newChoice(first, last uint16, rule int) choice {
	return choice(first)<<48 | choice(rule)<<16 | choice(last)
}

func (c choice) first() int { return int(c >> 48) }
func (c choice) last() int  { return int(c & 0xffff) }
func (c choice) rule() int  { return int(c >> 16 & 0xffffffff) }

// firstOf returns the verdict of the first rule for every port; ports without a rule get none. It
// sorts the choices.
func firstOf(choices []choice, none uint32, verdict func(rule int) uint32) (out runs) {
	out = make(runs, 0, 2*len(choices)+1)
	choices = deciding(inOrder(choices))
	var live active
	for at := 0; at < rootKeys; {
		for len(choices) > 0 && choices[0].first() <= at {
			live.push(choices[0])
			choices = choices[1:]
		}
		for len(live) > 0 && live[0].last() < at {
			live.pop()
		}
		next := rootKeys // the next port at which another rule may decide
		if len(choices) > 0 {
			next = choices[0].first()
		}
		if len(live) == 0 {
			out.from(at, none)
		} else {
			out.from(at, verdict(live[0].rule()))
			next = min(next, live[0].last()+1)
		}
		at = next
	}
	return out
}

// deciding drops choices that an earlier rule with the same first port covers. This pays off
// because many rules name the same ports for different peers.
func deciding(ordered []choice) []choice {
	out, first, last := ordered[:0], -1, 0
	for _, c := range ordered {
		if c.first() == first && c.last() <= last {
			continue
		}
		if c.first() != first {
			first, last = c.first(), 0
		}
		last = max(last, c.last())
		out = append(out, c)
	}
	return out
}

// manyChoices is the number of choices from which radix sort is faster.
const manyChoices = 256

// inOrder sorts choices, which are in the order of their rules, by first port. For many choices it
// uses radix sort, because a row may have thousands of rules, and a list thousands of rows.
func inOrder(choices []choice) []choice {
	if len(choices) < manyChoices {
		slices.Sort(choices)
		return choices
	}
	from, to := choices, make([]choice, len(choices))
	for _, shift := range []int{48, 56} {
		var at [257]int
		for _, c := range from {
			at[c>>shift&255+1]++
		}
		for digit := range 256 {
			at[digit+1] += at[digit]
		}
		for _, c := range from {
			digit := c >> shift & 255
			to[at[digit]] = c
			at[digit]++
		}
		from, to = to, from
	}
	return from
}

// active is a heap of choices with the first rule on top.
type active []choice

func (a *active) push(c choice) {
	l := append(*a, c)
	for i := len(l) - 1; i > 0 && l[i].rule() < l[(i-1)/2].rule(); i = (i - 1) / 2 {
		l[i], l[(i-1)/2] = l[(i-1)/2], l[i]
	}
	*a = l
}

func (a *active) pop() {
	l := *a
	last := len(l) - 1
	l[0], l = l[last], l[:last]
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(l) && l[child].rule() < l[least].rule() {
				least = child
			}
		}
		if least == i {
			break
		}
		l[i], l[least] = l[least], l[i]
		i = least
	}
	*a = l
}

// placeOf returns the place of a protocol's cell in a row.
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

// choices returns the choices of rules at a place of a row: by destination port, for rules whose
// source ports include source, or by protocol number.
func choices(rules *renderer.RuleList, of []int, place int, source uint16) []choice {
	out := make([]choice, 0, len(of))
	for _, i := range of {
		r := rules.At(i)
		switch {
		case place == placeOther && r.Protocol == api.AnyProtocol:
			out = append(out, newChoice(0, 65535, i))
		case place == placeOther && !r.Protocol.HasPorts():
			out = append(out, newChoice(uint16(r.Protocol), uint16(r.Protocol), i))
		case place != placeOther && (r.Protocol == api.AnyProtocol || r.Protocol == placeProtocol[place]) && r.SrcPort.Contains(source):
			first, last := r.DstPort.Bounds()
			out = append(out, newChoice(first, last, i))
		}
	}
	return out
}

// sources returns the source ports at which the verdict of rules about a protocol may change.
func sources(rules *renderer.RuleList, of []int, place int) []uint16 {
	out := []uint16{0}
	for _, i := range of {
		if r := rules.At(i); place != placeOther && r.Protocol == placeProtocol[place] && !r.SrcPort.IsAny() {
			out = append(out, r.SrcPort.First)
			if r.SrcPort.Last < 65535 {
				out = append(out, r.SrcPort.Last+1)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
