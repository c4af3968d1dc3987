package entries

import (
	"slices"
)

// masks are the parts of a packet that VPP masks to look up an entry.
type masks struct {
	ip6, protocol, sport, dport bool
	src, dst                    int
	mask                        uint8
}

func (e *Entry) masks() masks {
	s := masks{ip6: e.Src.Is6(), src: e.Src.Bits(), dst: e.Dst.Bits(), protocol: e.Protocol != 0}
	if s.protocol {
		s.sport, s.dport, s.mask = e.SrcPort.First == e.SrcPort.Last, e.DstPort.First == e.DstPort.Last, e.Mask
	}
	return s
}

// HasMasksOf reports whether two pieces have the same masks, in the same order of first use. VPP
// then gives the same hash keys to their common entries and to entries behind them. It returns
// false if the masks are unknown.
func (p Piece) HasMasksOf(o Piece) bool {
	if len(p.Entries) != p.Count || len(o.Entries) != o.Count {
		return false
	}
	return slices.Equal(p.masks(), o.masks())
}

// maskLists are the masks of pieces.
var maskLists Computed[[]masks]

func (p Piece) masks() []masks {
	if known := maskLists.Get(p.Digest); known != nil {
		return *known
	}
	out := masksOf(p.Entries)
	maskLists.Put(p.Digest, &out)
	return out
}

func masksOf(entries []Entry) (out []masks) {
	seen := make(map[masks]bool)
	var last masks // entries with equal masks often follow each other
	for i := range entries {
		s := entries[i].masks()
		if i > 0 && s == last {
			continue
		}
		if last = s; !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
