package acl

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// A guard is the ACL, one for each interface of a pod, that denies as packets enter the vswitch
// what is certain to be denied: by the rules of the pod that sends, or by those of the pods of this
// node. The ACLs of outputs decide; the guard keeps packets that they will deny from making
// sessions, which would let the answers in, and would fill the table of sessions.
//
// VPP forgets the sessions of an interface whose list of ACLs changes. So every guard is an ACL of
// its own, is bound once, and changes in place.

// isGuard reports whether the slot is for a guard.
func (s *slot) isGuard() bool { return isNumbered(s.name, "i") }

// isInput reports whether the ACLs of the slot are in input lists that hold the guards.
func (s *slot) isInput() bool { return s.name == infraSlot || s.name == reflectSlot || s.isGuard() }

// prepareGuards decides what the guards of pods hold.
func (w *wanted) prepareGuards() {
	w.guards = make(map[uint32]*slot)
	if w.r.options.Orientation != Outputs {
		return
	}
	held := w.heldGuards()
	pieces := make(map[*cache.Table]piece)
	for _, n := range w.m.ifs {
		if pod, ok := w.pods[n.index]; ok && w.judgesInput(n) {
			s := held[n.index]
			if s == nil {
				s = w.r.newSlot("i")
			}
			w.guards[n.index], w.live[s] = s, true
			w.guard(s, w.layout.Senders[pod], pieces)
		}
	}
}

// guard decides what the guard of a pod with a table holds. Pods with equal tables share what was
// found out.
func (w *wanted) guard(s *slot, t *cache.Table, pieces map[*cache.Table]piece) {
	if !w.needsGuard(s, t) {
		return
	}
	p, known := pieces[t]
	if !known {
		p = w.guardOf(t)
		pieces[t] = p
	}
	s.want, s.table, s.indexes = []piece{p}, digestOfTable(t), s.indexes[:min(len(s.indexes), 1)]
}

// heldGuards returns the guards that interfaces have, by interface.
func (w *wanted) heldGuards() map[uint32]*slot {
	by := make(map[uint32]*slot)
	for _, s := range w.r.slots {
		if s.isGuard() && len(s.indexes) > 0 {
			by[s.indexes[0]] = s
		}
	}
	out := make(map[uint32]*slot)
	for _, n := range w.m.ifs {
		for _, index := range n.bound.in {
			if s := by[index]; s != nil && out[n.index] == nil {
				out[n.index] = s
				delete(by, index) // it is of one interface
			}
		}
	}
	for n, s := range w.r.guards { // somebody may have unbound it
		if out[n] == nil && len(s.indexes) > 0 && by[s.indexes[0]] == s {
			out[n] = s
			delete(by, s.indexes[0])
		}
	}
	return out
}

func digestOfTable(t *cache.Table) renderer.Digest {
	if t == nil {
		return renderer.Digest{}
	}
	return t.Digest
}

// needsGuard reports whether a guard may have to hold something else than it does.
func (w *wanted) needsGuard(s *slot, t *cache.Table) bool {
	return s.want == nil || w.inputDiffers || s.table != digestOfTable(t) || t != nil && w.names(t.Sets)
}

// guardOf returns what the guard of pods with a table must hold. What it permits makes sessions as
// the ACL behind it does; what it leaves undecided that one permits.
func (w *wanted) guardOf(t *cache.Table) piece {
	if t == nil {
		return newPiece(nil, nil)
	}
	var x, out expansion
	if !permitsAll(t) {
		for _, p := range w.r.options.Services {
			x.add(unknownRule, entry{verdict: reflect, src: anyOf(p.Addr()), dst: p, sport: anyPorts, dport: anyPorts})
		}
	}
	decides := w.guardEntriesOf(t)
	x = expansion{slices.Concat(x.entries, decides.entries), slices.Concat(x.rules, decides.rules)}
	owned := w.r.ownsSessions()
	for i, e := range x.entries {
		switch {
		case e.verdict == deny:
			out.add(x.rules[i], e)
		case owned:
			out.add(unknownRule, owning(e)...) // permits are counted at the outputs
		default:
			out.add(unknownRule, e)
		}
	}
	return newPiece(out.entries, out.rules)
}

// guardEntriesOf returns entries that permit at least what a table permits. They are exact unless
// there would be too many: then what stands in front of the first set is, which is about the pods
// of the node, and of the rest larger blocks are permitted.
func (w *wanted) guardEntriesOf(t *cache.Table) expansion {
	last, z := len(t.Rules)-1, w.r.sizes.guard
	x, err := w.expand.expand(t, 0, len(t.Rules))
	switch {
	case err == nil && permitsAll(t) && len(x.entries) <= z.peers+z.entries:
		return x.before(last) // the ACL behind the guard permits the rest
	case err == nil && len(x.entries) <= z.entries:
		return x.closed(t)
	}
	front := w.expand.front(t.Rules, z.peers)
	if x, err = w.expand.expand(t, 0, front); err != nil {
		x, front = expansion{}, 0
	}
	return x.permitting(w.blocksOf(t.Rules[front:], z.blocks)).closed(t)
}

// front returns how many rules stand in front of the first that names a set and take so many
// entries at most.
func (x *expander) front(rules []api.ContivRule, most int) int {
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
func (x expansion) before(rule int) expansion {
	n := slices.Index(x.rules, int32(rule))
	if n < 0 {
		n = len(x.rules)
	}
	return expansion{slices.Clone(x.entries[:n]), slices.Clone(x.rules[:n])}
}

// permitting returns the entries with permits for blocks behind them.
func (x expansion) permitting(blocks cache.Families) expansion {
	for family, all := range families {
		for _, p := range blocks[family] {
			x.add(unknownRule, entry{verdict: reflect, src: all, dst: p, sport: anyPorts, dport: anyPorts})
		}
	}
	return x
}

// closed returns the entries with a last one of each family that denies the rest, which the last
// rule does, or the end of the table.
func (x expansion) closed(t *cache.Table) expansion {
	all := everything(deny)
	if n := len(x.entries) - len(all); n < 0 || !slices.Equal(x.entries[n:], all) {
		x.add(int32(len(t.Rules)-1), all...)
	}
	return x
}

// add appends entries that stand for a rule.
func (x *expansion) add(rule int32, entries ...entry) {
	for _, e := range entries {
		x.entries, x.rules = append(x.entries, e), append(x.rules, rule)
	}
}

// unknownRule stands for no rule of a table.
const unknownRule = -1

// permitsAll reports whether a table permits what no rule before the last one decides.
func permitsAll(t *cache.Table) bool {
	return t.Rules[len(t.Rules)-1] == api.ContivRule{Action: api.Permit}
}

// blocksOf returns at most so many blocks of each family that hold all addresses to which rules
// permit anything.
func (w *wanted) blocksOf(rules []api.ContivRule, most int) (out cache.Families) {
	for _, r := range rules {
		if r.Action == api.Permit {
			nets := w.expand.nets.Of(r.Dst)
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
	slices.SortFunc(blocks, cache.ComparePrefixes)
	out := cache.Aggregate(blocks)
	for bits := longest(out) - 1; len(out) > most && bits >= 0; bits-- {
		for i, p := range out {
			out[i] = netip.PrefixFrom(p.Addr(), min(p.Bits(), bits)).Masked()
		}
		out = cache.Aggregate(out)
	}
	return out
}

func longest(blocks []netip.Prefix) (bits int) {
	for _, p := range blocks {
		bits = max(bits, p.Bits())
	}
	return bits
}

// translations are the commands that list which addresses VPP translates to others, and what stands
// in every line of it (plugins/cnat/cnat_translation.c, plugins/nat/nat44-ed and nat44-ei).
var translations = map[string]string{
	"show cnat translation": "->", "show nat44 static mappings": "external", "show nat44 ei static mappings": "external",
}

// lookForServices logs that the vswitch translates addresses while Options.Services names none:
// pods that policy restricts in what they send do not reach services then.
func (r *Renderer) lookForServices(ctx context.Context) error {
	if r.options.Orientation != Outputs || len(r.options.Services) > 0 {
		return nil
	}
	for _, command := range slices.Sorted(maps.Keys(translations)) {
		out, err := r.link.ask(ctx, command)
		if err != nil {
			return err
		}
		if strings.Contains(out, translations[command]) {
			r.log.Warn("vpp translates addresses, and those of services are not configured: pods with an egress policy do not reach services; set --service-cidr",
				"command", command)
			return nil
		}
	}
	return nil
}

// inputs returns which ACLs of inputs change in place.
func (w *wanted) inputs() (out []change) {
	for _, s := range w.sorted() {
		if !s.isInput() || len(s.indexes) == 0 {
			continue
		}
		if h := w.m.acls[s.indexes[0]]; h != nil && h.piece.digest != s.want[0].digest {
			out = append(out, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
	return out
}

// changeInputs changes the ACLs of inputs in place. VPP would take every session that packets made
// as they entered for outdated, and with them the flows that pods have opened. So sessions are not
// looked at again for these changes: what they deny, outputs deny, too.
//
// When something fails between, the next commit reads everything and sets it anew.
func (w *wanted) changeInputs(ctx context.Context) error {
	changes := w.inputs()
	if len(changes) == 0 {
		return nil
	}
	revoke := w.r.options.Established == Revoke
	if revoke {
		if _, err := w.r.setting(ctx, reclassify(false)); err != nil {
			return err
		}
	}
	if err := w.change(ctx, changes); err != nil || !revoke {
		return err
	}
	_, err := w.r.setting(ctx, reclassify(true))
	return err
}
