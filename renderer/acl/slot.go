package acl

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// slot is a place in the vswitch that holds a table, or a part of one. It keeps
// its ACLs when the content changes.
type slot struct {
	name    string
	indexes []uint32        // the ACLs that hold it; none before it is created
	roles   []layout.Role   // of the ACLs of a local table; none where all are mixed
	want    []entries.Piece // what they must hold; nil when it must be expanded anew

	table  renderer.Digest       // the table that want was expanded from
	turn   turn                  // of a slot whose changes take long
	owners map[entries.Entry]int // of the young slot: the parts that the classes of its entries are of
}

// Names of slots. Local tables have "l" and a number, guards "i" and a number.
const (
	infraSlot   = "infra"
	reflectSlot = "reflect"
	youngSlot   = "young"  // what was permitted last by lists of the global table
	finalSlot   = "final"  // the last rule of the global table
	openSlot    = "open"   // the output of pods that have no table, and of uplinks without a global one
	closedSlot  = "closed" // for pods whose table was refused and that have no older one, and held interfaces
)

// partOf returns the name of the i-th of them.
func partOf(i int) string { return fmt.Sprintf("g%d", i) }

// role returns what the n-th ACL is for.
func (s *slot) role(n int) layout.Role {
	if n < len(s.roles) {
		return s.roles[n]
	}
	return layout.Role{}
}

// tag returns the tag of the n-th ACL when it holds something.
func (s *slot) tag(n int, p entries.Piece) string { return mirror.Tag(s.name, n, s.role(n), p.Digest) }

// isGlobal says whether the slot holds a part of the global table.
func (s *slot) isGlobal() bool { return s.name == youngSlot || isNumbered(s.name, "g") }

// isLocal says whether the slot is for a local table.
func (s *slot) isLocal() bool { return isNumbered(s.name, "l") }

func isNumbered(name, letter string) bool {
	number, ok := strings.CutPrefix(name, letter)
	_, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil
}

// slots are all that hold something, and what they are for.
type slots struct {
	byName map[string]*slot                   // all but those of others
	local  map[renderer.Digest]*slot          // by table
	shares map[renderer.Digest]map[uint32]int // of large tables: the groups of interfaces that share ACLs
}

func newSlots() *slots {
	return &slots{byName: make(map[string]*slot), local: make(map[renderer.Digest]*slot)}
}

// get returns the slot of a name; a new one when there is none.
func (a *slots) get(name string) *slot {
	s := a.byName[name]
	if s == nil {
		s = &slot{name: name}
		a.byName[name] = s
	}
	return s
}

// content returns what the ACLs of a slot hold, with the rules as far as they are known.
func (s *slot) content(m *mirror.Mirror) layout.Content {
	out := layout.Content{Roles: s.roles}
	if len(s.indexes) > 0 {
		out.Pieces = make([]entries.Piece, len(s.indexes))
	}
	for n, index := range s.indexes {
		h := m.ACLs[index]
		if h == nil {
			continue // it holds nothing that is known
		}
		if out.Pieces[n], out.Pieces[n].Rules = h.Piece, nil; n < len(s.want) {
			out.Pieces[n].Rules = s.want[n].Rules
		}
	}
	return out
}

// adopt finds the ACLs of slots by their tags, after everything was read. What the
// slots must hold is expanded anew.
func (a *slots) adopt(m *mirror.Mirror) {
	type place struct {
		n     int
		role  layout.Role
		index uint32
	}
	found := make(map[string][]place)
	for _, h := range m.ACLs {
		if name, n, a, _ := mirror.ParseTag(h.Tag); name != "" {
			found[name] = append(found[name], place{n, a, h.Index})
		}
	}
	used := m.Users()
	for _, s := range a.byName {
		s.indexes, s.roles, s.want, s.owners = nil, nil, nil, nil
	}
	for name, places := range found {
		slices.SortFunc(places, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.n, b.n), compareBool(used[b.index], used[a.index]), cmp.Compare(a.index, b.index))
		})
		s := a.get(name)
		for _, p := range places {
			if p.n == len(s.indexes) { // of duplicates only the first; none behind a gap
				s.indexes, s.roles = append(s.indexes, p.index), append(s.roles, p.role)
			}
		}
	}
	maps.DeleteFunc(a.byName, func(_ string, s *slot) bool { return len(s.indexes) == 0 })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// newLocal returns a slot for a local table.
func (a *slots) newLocal() *slot { return a.newSlot("l") }

// newSlot returns a slot with a name, of a letter and a number, that nothing in the vswitch has.
func (a *slots) newSlot(letter string) *slot {
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s%d", letter, n)
		if a.byName[name] == nil {
			return a.get(name)
		}
	}
}

// votes says how many lists that have a slot are to have which table.
type votes map[*cache.Table]int

// votes returns the votes of slots.
func (w *wanted) votes(slots map[string]*slot) map[*slot]votes {
	of := make(map[uint32]*slot, len(slots))
	out := make(map[*slot]votes, len(slots))
	for _, s := range slots {
		of[s.indexes[0]], out[s] = s, votes{}
	}
	for _, n := range w.m.Interfaces {
		for _, x := range w.who.seats(n) {
			for _, index := range x.acls {
				if s := of[index]; s != nil && x.table != nil {
					out[s][x.table]++
				}
			}
		}
	}
	return out
}

// first returns the table with the most votes, nil without any.
func (v votes) first() (out *cache.Table) {
	for t, n := range v {
		if m := v[out]; n > m || n == m && bytes.Compare(t.Digest[:], out.Digest[:]) < 0 {
			out = t
		}
	}
	return out
}

// outvoted reports whether a table has to leave its slot to another one, which has changed, which
// more of the interfaces are to have, and which the slot can take over.
func (w *wanted) outvoted(s *slot, t *cache.Table, v votes) bool {
	first := v.first()
	if first == nil || v[first] <= v[t] || w.tooBig[first.Digest] || w.slots.local[first.Digest] != nil {
		return false
	}
	x, changed := w.content[first.Digest]
	if !changed {
		return false
	}
	if _, ok := w.sizes().Refit(s.content(w.m), x, w.how); !ok {
		return false
	}
	if _, known := w.content[t.Digest]; !known {
		w.expandTable(t)
	}
	return true
}

// assign gives every local table a slot: the one it has, unless most of its interfaces go to
// another table; else one that holds just that; else the one of whose interfaces the most will have
// the table; else a new one. So when a few interfaces part from many, the many are not touched.
func (w *wanted) assign(tables []*cache.Table) {
	r := w.r
	spare := make(map[string]*slot)
	for name, s := range r.slots.byName {
		if s.isLocal() && len(s.indexes) > 0 {
			spare[name] = s
		}
	}
	votes := w.votes(spare)
	local := make(map[renderer.Digest]*slot, len(tables))
	var homeless []*cache.Table
	for _, t := range tables {
		if s := r.slots.local[t.Digest]; s != nil && spare[s.name] == s && !w.outvoted(s, t, votes[s]) {
			local[t.Digest] = s
			delete(spare, s.name)
		} else {
			homeless = append(homeless, t)
		}
	}
	for _, fits := range []func(*slot, *cache.Table) bool{
		func(s *slot, t *cache.Table) bool {
			return w.wholly(s, t) && w.sizes().Holds(s.content(w.m), w.content[t.Digest])
		},
		func(s *slot, t *cache.Table) bool {
			return w.sizes().Holds(s.content(w.m), w.content[t.Digest]) && !w.outvoted(s, t, votes[s])
		},
		w.wholly,
		func(s *slot, t *cache.Table) bool { return votes[s].first() == t },
	} {
		homeless = slices.DeleteFunc(homeless, func(t *cache.Table) bool {
			for _, name := range slices.Sorted(maps.Keys(spare)) {
				if s := spare[name]; fits(s, t) {
					local[t.Digest] = s
					delete(spare, name)
					return true
				}
			}
			return false
		})
	}
	for _, t := range homeless {
		local[t.Digest] = r.slots.newLocal()
	}
	r.slots.local = local
}
