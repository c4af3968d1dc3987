package expand

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// front returns how many rules stand in front of the first that names a set and take so many
// entries at most.
func (x *Expander) front(rules []api.ContivRule, most int) int {
	entries := 0
	for i, r := range rules {
		l := line{src: x.nets.Of(r.Src), dst: x.nets.Of(r.Dst)}
		if entries += l.size(); entries > most || r.Src.Set != 0 || r.Dst.Set != 0 {
			return i
		}
	}
	return len(rules)
}

// before returns the entries that stand in front of those of a rule.
func before(x entries.List, rule int) entries.List {
	n := slices.Index(x.Rules, int32(rule))
	if n < 0 {
		n = len(x.Rules)
	}
	return entries.List{Entries: slices.Clone(x.Entries[:n]), Rules: slices.Clone(x.Rules[:n])}
}

// permitting returns the entries with permits for blocks behind them.
func permitting(x entries.List, blocks cache.Families) entries.List {
	for family, all := range entries.Families {
		for _, p := range blocks[family] {
			x.Add(unknownRule, entries.Entry{Verdict: entries.Reflect, Src: all, Dst: p, SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts})
		}
	}
	return x
}

// closed returns the entries with a last one of each family that denies the rest, which the last
// rule does, or the end of the table.
func closed(x entries.List, t *cache.Table) entries.List {
	all := entries.Everything(entries.Deny)
	if n := len(x.Entries) - len(all); n < 0 || !slices.Equal(x.Entries[n:], all) {
		x.Add(int32(len(t.Rules)-1), all...)
	}
	return x
}

// unknownRule stands for no rule of a table.
const unknownRule = -1

// PermitsAll reports whether a table permits what no rule before the last one decides.
func PermitsAll(t *cache.Table) bool {
	return t.Rules[len(t.Rules)-1] == api.ContivRule{Action: api.Permit}
}

// blocksOf returns at most so many blocks of each family that hold all addresses to which rules
// permit anything.
func (x *Expander) blocksOf(rules []api.ContivRule, most int) (out cache.Families) {
	for _, r := range rules {
		if r.Action == api.Permit {
			nets := x.nets.Of(r.Dst)
			for family := range out {
				out[family] = append(out[family], nets[family]...)
			}
		}
	}
	for family, blocks := range out {
		out[family] = widen(blocks, most)
	}
	return out
}

// widen returns at most so many blocks that hold all that the given ones hold. It depends on these
// alone, not on their order, and reuses the slice.
func widen(blocks []netip.Prefix, most int) []netip.Prefix {
	slices.SortFunc(blocks, prefixes.Compare)
	out := prefixes.Aggregate(blocks)
	for bits := longest(out) - 1; len(out) > most && bits >= 0; bits-- {
		for i, p := range out {
			out[i] = netip.PrefixFrom(p.Addr(), min(p.Bits(), bits)).Masked()
		}
		out = prefixes.Aggregate(out)
	}
	return out
}

func longest(blocks []netip.Prefix) (bits int) {
	for _, p := range blocks {
		bits = max(bits, p.Bits())
	}
	return bits
}

// GuardSizes bound guards: whatever changes a set changes the guards of all pods that it is for,
// one by one.
type GuardSizes struct {
	Entries int // of a guard that permits exactly what a table permits
	Peers   int // of a larger one, about pods of the node: ten for each of a hundred
	Blocks  int // of each family, which a larger one permits beside that
}

// Guards says what guards have in common.
type Guards struct {
	Services []netip.Prefix // what may be translated behind guards
	Owned    bool           // sessions of TCP belong to the side that opened them
	Sizes    GuardSizes
}

// Guard returns what the guard of pods with a table must hold. What it permits makes sessions as
// the ACL behind it does; what it leaves undecided that one permits.
func (x *Expander) Guard(t *cache.Table, of Guards) entries.Piece {
	if t == nil {
		return entries.NewPiece(nil, nil)
	}
	var all, out entries.List
	if !PermitsAll(t) {
		for _, p := range of.Services {
			all.Add(unknownRule, entries.Entry{Verdict: entries.Reflect, Src: entries.AnyOf(p.Addr()), Dst: p, SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts})
		}
	}
	decides := x.guardEntries(t, of.Sizes)
	all = entries.List{Entries: slices.Concat(all.Entries, decides.Entries), Rules: slices.Concat(all.Rules, decides.Rules)}
	for i, e := range all.Entries {
		switch {
		case e.Verdict == entries.Deny:
			out.Add(all.Rules[i], e)
		case of.Owned:
			out.Add(unknownRule, entries.Owning(e)...) // permits are counted at the outputs
		default:
			out.Add(unknownRule, e)
		}
	}
	return entries.NewPiece(out.Entries, out.Rules)
}

// guardEntries returns entries that permit at least what a table permits. They are exact unless
// there would be too many: then what stands in front of the first set is, which is about the pods
// of the node, and of the rest larger blocks are permitted.
func (x *Expander) guardEntries(t *cache.Table, z GuardSizes) entries.List {
	last := len(t.Rules) - 1
	out, err := x.Expand(t, 0, len(t.Rules))
	switch {
	case err == nil && PermitsAll(t) && len(out.Entries) <= z.Peers+z.Entries:
		return before(out, last) // the ACL behind the guard permits the rest
	case err == nil && len(out.Entries) <= z.Entries:
		return closed(out, t)
	}
	front := x.front(t.Rules, z.Peers)
	if out, err = x.Expand(t, 0, front); err != nil {
		out, front = entries.List{}, 0
	}
	return closed(permitting(out, x.blocksOf(t.Rules[front:], z.Blocks)), t)
}
