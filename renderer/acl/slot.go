package acl

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// slot holds a table, or a part of one, in the vswitch. It keeps its ACLs when the content changes.
type slot struct {
	name    string
	indexes []uint32        // ACLs that hold it; nil before it is created
	roles   []layout.Role   // of the ACLs of a local table; nil where all are mixed
	want    []entries.Piece // desired content of the ACLs; nil when it must be expanded again

	table  renderer.Digest       // table from which want was expanded
	lines  *expand.Lines         // of that table, where want has several ACLs; nil when unknown
	owners map[entries.Entry]int // of the slot for recent entries: the part that each class of its entries belongs to
}

// Names of slots. A local table is named "l" and a number, a guard "i" and a number.
const (
	infraSlot   = "infra"
	reflectSlot = "reflect"
	youngSlot   = "young"  // the latest permits of lists of the global table
	finalSlot   = "final"  // last rule of the global table
	openSlot    = "open"   // output of pods without a table, and of uplinks without a global table
	closedSlot  = "closed" // for pods with a refused table and no older one, and for blocked interfaces
)

// partOf returns the name of the i-th part of the global table.
func partOf(i int) string { return fmt.Sprintf("g%d", i) }

// role returns the role of the n-th ACL.
func (s *slot) role(n int) layout.Role {
	if n < len(s.roles) {
		return s.roles[n]
	}
	return layout.Role{}
}

// tag returns the tag of the n-th ACL for some content.
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

// slots are all slots in use.
type slots struct {
	byName map[string]*slot                   // all except those of other owners
	local  map[renderer.Digest]*slot          // by table
	shares map[renderer.Digest]map[uint32]int // of large tables: the groups of interfaces that share ACLs

	// unsettled are the sets that changed in plans whose tables were refused in part; nil without
	// such plans. The next plan does not name what changes back.
	unsettled map[api.SetID]bool
}

func newSlots() *slots {
	return &slots{byName: make(map[string]*slot), local: make(map[renderer.Digest]*slot)}
}

// get returns the slot with a name, and creates it if it is missing.
func (a *slots) get(name string) *slot {
	s := a.byName[name]
	if s == nil {
		s = &slot{name: name}
		a.byName[name] = s
	}
	return s
}

// hold sets the desired content to a local table.
func (s *slot) hold(t *cache.Table, c layout.Content, lines *expand.Lines) {
	s.want, s.roles, s.table, s.lines = c.Pieces, c.Roles, t.Digest, nil
	if c.IsInOrder() {
		s.lines = lines
	}
}

// content returns what the ACLs of a slot hold, with rules where known.
func (s *slot) content(m *mirror.Mirror) layout.Content {
	out := layout.Content{Roles: s.roles}
	if len(s.indexes) > 0 {
		out.Pieces = make([]entries.Piece, len(s.indexes))
	}
	for n, index := range s.indexes {
		h := m.ACLs[index]
		if h == nil {
			continue // its content is unknown
		}
		if out.Pieces[n], out.Pieces[n].Rules = h.Piece, nil; n < len(s.want) {
			out.Pieces[n].Rules = s.want[n].Rules
		}
	}
	return out
}

// adopt finds the ACLs of slots by their tags after a full read. The desired content is expanded
// again.
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
	unused := func(p place) int {
		if used[p.index] {
			return 0
		}
		return 1
	}
	for _, s := range a.byName {
		s.indexes, s.roles, s.want, s.owners = nil, nil, nil, nil
	}
	for name, places := range found {
		slices.SortFunc(places, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(unused(a), unused(b)), cmp.Compare(a.index, b.index))
		})
		s := a.get(name)
		for _, p := range places {
			if p.n == len(s.indexes) { // skip duplicates, and everything behind a gap
				s.indexes, s.roles = append(s.indexes, p.index), append(s.roles, p.role)
			}
		}
	}
	maps.DeleteFunc(a.byName, func(_ string, s *slot) bool { return len(s.indexes) == 0 })
}

// newLocal returns a new slot for a local table.
func (a *slots) newLocal() *slot { return a.newSlot("l") }

// newSlot returns a slot with a name, made of a letter and a number, that is not in use in the
// vswitch.
func (a *slots) newSlot(letter string) *slot {
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s%d", letter, n)
		if a.byName[name] == nil {
			return a.get(name)
		}
	}
}

// byACL returns the slots of local tables by ACL.
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

// ofLocal returns the slots that hold a local table, by group number.
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

// has reports whether the list has the ACLs of a slot.
func (x listBinding) has(s *slot) bool {
	return len(s.indexes) > 0 && slices.Contains(x.acls, s.indexes[0])
}

// listBinding is one of the two lists of an interface, and the table that it must have.
type listBinding struct {
	acls  []uint32 // currently bound
	table *cache.Table
}

// heldInput returns the digest of the current input ACL of pods; zero when there is none.
func (a *slots) heldInput(m *mirror.Mirror) entries.Digest {
	if s := a.byName[reflectSlot]; s != nil {
		return m.ACLs[s.indexes[0]].Piece.Digest
	}
	return entries.Digest{}
}

func present(s *slot) []*slot {
	if s == nil {
		return nil
	}
	return []*slot{s}
}

// digestOfGroup returns the digest of the copy of a large table for one group.
func digestOfGroup(d renderer.Digest, group int) renderer.Digest {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(slices.Clone(d[:]), uint32(group)))
	return renderer.Digest(sum[:len(d)])
}

// isGuard reports whether the slot holds a guard.
func (s *slot) isGuard() bool { return isNumbered(s.name, "i") }

// globalSlots returns the slots of the global table in the order of uplink lists.
func (a *slots) globalSlots() []*slot {
	out := append(make([]*slot, 0, layout.Parts+2), a.get(youngSlot))
	for n := range layout.Parts {
		out = append(out, a.get(partOf(n)))
	}
	return append(out, a.get(finalSlot))
}
