package acl

import (
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

// isGlobal reports whether the slot holds a part of the global table.
func (s *slot) isGlobal() bool { return s.name == youngSlot || isNumbered(s.name, "g") }

// isLocal reports whether the slot is for a local table.
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

// byACL returns the slots of local tables.
func (a *slots) byACL() map[uint32]*slot {
	out := make(map[uint32]*slot)
	for _, s := range a.byName {
		if s.isLocal() {
			for _, index := range s.indexes {
				out[index] = s
			}
		}
	}
	return out
}

// ofLocal returns the slots that hold a local table, by the number of the group.
func (a *slots) ofLocal(t *cache.Table) (out []*slot) {
	of, shared := a.shares[t.Digest]
	if !shared {
		return present(a.local[t.Digest])
	}
	var groups []int
	for _, group := range of {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	for _, group := range groups {
		out = append(out, present(a.local[digestOfGroup(t.Digest, group)])...)
	}
	return out
}

// has reports whether the list has a slot.
func (x listBinding) has(s *slot) bool {
	return len(s.indexes) > 0 && slices.Contains(x.acls, s.indexes[0])
}

// listBinding is one of the two lists of an interface, and the table that it is to have.
type listBinding struct {
	acls  []uint32 // bound now
	table *cache.Table
}

// heldInput returns the digest of what the input of pods holds; zero where there is none.
func (a *slots) heldInput(m *mirror.Mirror) entries.Digest {
	if s := a.byName[reflectSlot]; s != nil {
		return m.ACLs[s.indexes[0]].Piece.Digest
	}
	return entries.Digest{}
}
