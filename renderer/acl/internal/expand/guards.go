package expand

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// front returns the number of rules before the first rule that names a set, limited to rules that
// take at most the given number of entries.
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

// before returns the entries in front of those of a rule.
func before(x entries.List, rule int) entries.List {
	n := slices.Index(x.Rules, int32(rule))
	if n < 0 {
		n = len(x.Rules)
	}
	return entries.List{Entries: slices.Clone(x.Entries[:n]), Rules: slices.Clone(x.Rules[:n])}
}

// permitting returns the entries, followed by permits for blocks.
func permitting(x entries.List, blocks cache.Families) entries.List {
	for family, all := range entries.Families {
		for _, p := range blocks[family] {
			x.Add(unknownRule, entries.Entry{Verdict: entries.Reflect, Src: all, Dst: entries.NetOf(p), SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts})
		}
	}
	return x
}

// closed returns the entries, followed by an entry for each family that denies the rest, like the
// last rule or the end of the table.
func closed(x entries.List, t *cache.Table) entries.List {
	all := entries.Everything(entries.Deny)
	if n := len(x.Entries) - len(all); n < 0 || !slices.Equal(x.Entries[n:], all) {
		x.Add(int32(len(t.Rules)-1), all...)
	}
	return x
}

// unknownRule is the rule index of entries that come from no rule.
const unknownRule = -1

// PermitsAll reports whether a table permits what no rule before the last one decides.
func PermitsAll(t *cache.Table) bool {
	last := t.Rules[len(t.Rules)-1]
	last.Audit = false // it permits, too
	return last == api.ContivRule{Action: api.Permit}
}

// blocksOf returns blocks that contain all addresses to which rules permit anything: at most the
// given number for each family.
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

// widen returns at most the given number of blocks that contain everything the given blocks
// contain. The result does not depend on their order. It reuses the slice.
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

// GuardSizes bound guards: a change of a set changes the guards of all affected pods, one by one.
type GuardSizes struct {
	Entries int // of a guard that permits exactly what a table permits
	Peers   int // of a larger guard, about pods of the node: ten for each of a hundred pods
	Blocks  int // for each family, that a larger guard permits in addition
}

// Guards are the common settings of guards.
type Guards struct {
	Services []netip.Prefix // addresses that may be translated behind guards
	Owned    bool           // TCP sessions belong to the side that opened them
	Sizes    GuardSizes
}

// Guard returns the content of the guard of pods with a table. Its permits create the same sessions
// as the ACL behind it; that ACL permits what the guard does not decide.
func (x *Expander) Guard(t *cache.Table, of Guards) entries.Piece {
	if t == nil {
		return entries.NewPiece(nil, nil)
	}
	var all, out entries.List
	if !PermitsAll(t) {
		for _, p := range of.Services {
			all.Add(unknownRule, entries.Entry{Verdict: entries.Reflect, Src: entries.AnyOf(p.Addr()), Dst: entries.NetOf(p), SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts})
		}
	}
	decides := x.guardEntries(t, of.Sizes)
	all = entries.List{Entries: slices.Concat(all.Entries, decides.Entries), Rules: slices.Concat(all.Rules, decides.Rules)}
	for i, e := range all.Entries {
		switch {
		case e.Verdict == entries.Deny:
			out.Add(all.Rules[i], e)
		case of.Owned:
			out.Add(unknownRule, entries.Owning(e)...) // permits are counted at outputs
		default:
			out.Add(unknownRule, e)
		}
	}
	return entries.NewPiece(out.Entries, out.Rules)
}

// guardEntries returns entries that permit at least what a table permits. They are exact, unless
// there would be too many: then they are exact in front of the first set, which is about pods of
// the node, and permit larger blocks for the rest.
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
