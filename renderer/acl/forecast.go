package acl

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// forecast simulates a plan call by call, and computes the memory that VPP needs at its worst
// moment. New ACLs coexist with old ones until these are removed. An ACL that changes in two steps
// holds both contents in between on all its interfaces. An interface that is being switched has the
// ACLs of two tables.
type forecast struct {
	m      *mirror.Mirror
	pieces map[uint32]entries.Piece // by ACL, as of the simulated call
	chains map[uint32][]*chain      // by ACL: the lists that contain it
	memory.Demand

	heldNow, appliedNow int
	all                 []*chain
	blame               map[*slot]uint64 // approximate bytes that slots add
}

// chain is the ACL list of one interface and direction. VPP stores the entries of each list
// separately.
type chain struct {
	acls     []uint32
	entries  map[uint32]int // before the plan
	rehashed int            // of these entries, those that may get other hash keys
}

// fewBehind is the number of entries that VPP may apply again without new hash keys, when no mask
// comes or goes. With more entries, VPP was seen to change keys anyway, because masks get new
// numbers.
const fewBehind = 512

// entryPrice is the approximate memory of an applied entry, including its lookup.
const entryPrice = memory.AppliedBytes + memory.HashPage

func newForecast(m *mirror.Mirror) *forecast {
	f := &forecast{m: m, pieces: make(map[uint32]entries.Piece), chains: make(map[uint32][]*chain), blame: make(map[*slot]uint64)}
	for index, h := range m.ACLs {
		f.pieces[index] = h.Piece
		f.heldNow += h.Piece.Count
	}
	f.Held = f.heldNow
	return f
}

// chain registers a list.
func (f *forecast) chain(list []uint32) *chain {
	c := &chain{acls: list, entries: make(map[uint32]int, len(list))}
	for _, index := range list {
		n := f.pieces[index].Count
		c.entries[index] = n
		f.appliedNow += n
		f.chains[index] = append(f.chains[index], c)
	}
	f.all = append(f.all, c)
	return c
}

// forecast simulates the plan, and determines the order in which interfaces are switched.
func (w *wanted) forecast(most int) *forecast {
	f := newForecast(w.m)
	at := make(map[*mirror.Interface][2]*chain, len(w.m.Interfaces))
	for _, n := range w.m.Interfaces {
		at[n] = [2]*chain{f.chain(n.Bound.In), f.chain(n.Bound.Out)}
	}
	f.Applied = f.appliedNow
	f.Low = memory.EntryBytes(f.Held, f.Applied) + memory.LookupBytes(max(most, f.Applied))
	f.step(most)
	defer unnumber(f.number(w.plan))
	f.step(most)
	f.change(inputsOf(w.m, w.plan), most)
	f.change(w.plan.early, most)
	w.plan.turns = f.turns(w)
	for _, n := range w.plan.turns {
		f.bind(w, n, at[n], most)
	}
	f.change(w.plan.late, most)
	f.Rehashed = f.keysChanged()
	return f
}

// number assigns provisional indexes to ACLs that will be created.
func (f *forecast) number(p *plan) (created []*slot) {
	next := uint32(1 << 31)
	for _, s := range p.sorted() {
		if len(s.indexes) > 0 {
			continue
		}
		created = append(created, s)
		for _, of := range s.want {
			f.pieces[next] = of
			f.heldNow += of.Count
			f.blame[s] += uint64(of.Count) * memory.HeldBytes
			s.indexes = append(s.indexes, next)
			next++
		}
	}
	return created
}

func unnumber(created []*slot) {
	for _, s := range created {
		s.indexes = nil
	}
}

// step checks the moment between two calls.
func (f *forecast) step(most int) {
	now := memory.EntryBytes(f.heldNow, f.appliedNow)
	f.Peak, f.Most = max(f.Peak, now), max(f.Most, f.appliedNow)
	f.Low = min(f.Low, now+memory.LookupBytes(max(most, f.Most)))
}

// change simulates changes in place. For a moment VPP holds both contents. It removes everything
// behind the ACL from every list and adds it again.
func (f *forecast) change(changes []change, most int) {
	for _, c := range changes {
		index := c.index()
		old := f.pieces[index]
		if old.Digest == c.piece.Digest {
			continue
		}
		if c.paced {
			f.switchOver(c, old, most)
			continue
		}
		sameMasks := old.HasMasksOf(c.piece)
		before := f.keysChanged()
		grows := c.piece.Count - old.Count
		for _, x := range f.chains[index] {
			f.appliedNow += grows
			stay := min(x.entries[index], c.piece.Count) + f.stay(x, x.acls[slices.Index(x.acls, index)+1:])
			if !sameMasks || stay > fewBehind {
				x.rehashed += stay
			}
		}
		f.heldNow += c.piece.Count
		f.step(most)
		f.heldNow -= old.Count
		f.step(most)
		f.pieces[index] = c.piece
		f.blame[c.slot] += uint64(max(0, grows)*len(f.chains[index])+f.keysChanged()-before)*entryPrice + uint64(c.piece.Count)*memory.HeldBytes
	}
}

// switchOver simulates interfaces that switch to another ACL, one after the other. Each has both
// ACLs for a moment, and all its entries are removed and added again.
func (f *forecast) switchOver(c change, old entries.Piece, most int) {
	index, before, grows := c.index(), f.keysChanged(), c.piece.Count-old.Count
	f.pieces[index] = c.piece
	f.heldNow += c.piece.Count
	for _, x := range f.chains[index] {
		f.appliedNow += c.piece.Count
		f.step(most)
		f.appliedNow -= old.Count
		x.rehashed += f.stay(x, x.acls)
	}
	f.heldNow -= old.Count
	f.step(most)
	f.blame[c.slot] += uint64(max(0, grows)*len(f.chains[index])+f.keysChanged()-before)*entryPrice + uint64(c.piece.Count)*memory.HeldBytes
}

// stay returns how many of a list's entries from before the plan some of its ACLs still have.
func (f *forecast) stay(x *chain, acls []uint32) (n int) {
	for _, index := range acls {
		n += min(x.entries[index], f.pieces[index].Count)
	}
	return n
}

// bind simulates the switch of an interface to other lists.
func (f *forecast) bind(w *wanted, n *mirror.Interface, at [2]*chain, most int) {
	from, before, lists := f.appliedNow, f.keysChanged(), w.m.With(n, w.bindings.ours(n))
	if _, _, ok := n.Bound.Exchange(lists); ok {
		f.appliedNow += f.count(lists.Out) - f.count(mirror.Common(lists.Out, at[1].acls))
		f.step(most)
		f.appliedNow = from
	}
	for i, to := range [2][]uint32{lists.In, lists.Out} {
		if slices.Equal(to, at[i].acls) {
			continue
		}
		at[i].rehashed += min(f.stay(at[i], at[i].acls), f.count(to))
		f.appliedNow += f.count(to) - f.count(at[i].acls)
		for _, index := range at[i].acls {
			f.chains[index] = slices.DeleteFunc(f.chains[index], func(c *chain) bool { return c == at[i] })
		}
		for _, index := range to {
			f.chains[index] = append(f.chains[index], at[i])
		}
		at[i].acls = to
	}
	f.step(most)
	for _, t := range [2]*cache.Table{w.ownership.senders[n.Index], w.ownership.tables[n.Index]} {
		if t != nil && w.slots.local[t.Digest] != nil {
			f.blame[w.slots.local[t.Digest]] += uint64(max(0, f.appliedNow-from)+f.keysChanged()-before) * entryPrice
		}
	}
}

func (f *forecast) count(list []uint32) (n int) {
	for _, index := range list {
		n += f.pieces[index].Count
	}
	return n
}

// keysChanged returns the number of entries that may get other hash keys.
func (f *forecast) keysChanged() (n int) {
	for _, x := range f.all {
		n += x.rehashed
	}
	return n
}

// turns returns the interfaces that get other lists. Those whose lists become shorter come first,
// to make room for longer ones.
func (f *forecast) turns(w *wanted) (out []*mirror.Interface) {
	grows := make(map[*mirror.Interface]int)
	for _, n := range w.m.Interfaces {
		to := w.m.With(n, w.bindings.ours(n))
		if to.Equal(n.Bound) {
			continue
		}
		out = append(out, n)
		grows[n] = f.count(to.In) + f.count(to.Out) - f.count(n.Bound.In) - f.count(n.Bound.Out)
	}
	slices.SortStableFunc(out, func(a, b *mirror.Interface) int { return cmp.Compare(grows[a], grows[b]) })
	return out
}
