package acl

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// stack is the ACLs that hold a table in one list of an interface, or the guard of the interface. No
// other interface has them, so that a change of content is a change of one interface, which no other
// one notices. A stack keeps its ACLs when the content changes.
type stack struct {
	shape   layout.Shape
	acls    []uint32        // in the order of the list
	want    []entries.Piece // the content that they have, or get
	table   renderer.Digest // table that want is about
	current bool            // want is known to be what the table is
}

// place is where an interface has a stack.
type place struct {
	index uint32 // of the interface
	use   use
}

// use is what a stack is for.
type use byte

const (
	output use = iota
	input      // only with Split
	guard      // an input ACL, ahead of the one that permits
)

// Names of ACLs in tags. Interfaces share the first ones.
const (
	infraACL   = "infra"
	reflectACL = "reflect"
	openACL    = "open"   // output of pods without a table, and of uplinks without a global table
	closedACL  = "closed" // for lists with a refused table and no older one, and for blocked interfaces

	guardACL  = "guard"
	tableACL  = "table"  // a whole table
	frontACL  = "front"  // of a large table: where the order matters
	baseACL   = "base"   // of a large table: the permits behind that
	recentACL = "recent" // the latest permits
	restACL   = "rest"   // what decides the rest
	partACL   = "part"   // of the global table
)

// isShared reports whether interfaces share an ACL.
func isShared(name string) bool {
	return name == infraACL || name == reflectACL || name == openACL || name == closedACL
}

// nameOf returns the name of the n-th ACL of a stack.
func nameOf(use use, shape layout.Shape, n int) string {
	switch {
	case use == guard:
		return guardACL
	case shape == layout.Shape{}:
		return tableACL
	case n == shape.ACLs()-1:
		return restACL
	case shape.Parts > 0:
		return partACL
	case n == shape.ACLs()-2:
		return recentACL
	case n < shape.Front:
		return frontACL
	}
	return baseACL
}

// acls are the ACLs of ours in the vswitch.
type acls struct {
	stacks map[place]*stack
	shared map[string]uint32 // by name
	// unsettled is set after an Apply that refused tables: plans then do not name what changes back.
	unsettled bool
}

func newACLs() *acls { return &acls{stacks: make(map[place]*stack), shared: make(map[string]uint32)} }

// adopt finds stacks and shared ACLs by their tags, after a full read. What the stacks should hold is
// found out again.
func (a *acls) adopt(m *mirror.Mirror) {
	*a = *newACLs()
	used, taken := m.Users(), make(map[uint32]bool)
	for _, index := range slices.Sorted(maps.Keys(m.ACLs)) {
		name, n, _ := mirror.ParseTag(m.ACLs[index].Tag)
		if before, known := a.shared[name]; isShared(name) && n == 0 && (!known || used[index] && !used[before]) {
			a.shared[name] = index
		}
	}
	for _, n := range m.Interfaces {
		a.adoptList(m, place{n.Index, output}, n.Bound.Out, taken)
		a.adoptList(m, place{n.Index, input}, n.Bound.In, taken)
		a.adoptList(m, place{n.Index, guard}, n.Bound.In, taken)
	}
}

// adoptList finds the stack in a list. An ACL belongs to one stack, even if another program has given
// it to several interfaces.
func (a *acls) adoptList(m *mirror.Mirror, at place, list []uint32, taken map[uint32]bool) {
	s := &stack{}
	var names []string
	for _, index := range list {
		if m.ACLs[index] == nil {
			continue
		}
		name, n, _ := mirror.ParseTag(m.ACLs[index].Tag)
		if isShared(name) || (name == guardACL) != (at.use == guard) || taken[index] {
			continue
		}
		if n != len(s.acls) {
			return // not in order
		}
		s.acls, names = append(s.acls, index), append(names, name)
	}
	count := func(name string) (n int) {
		for _, other := range names {
			if other == name {
				n++
			}
		}
		return n
	}
	s.shape = layout.Shape{Front: count(frontACL), Base: count(baseACL), Parts: count(partACL)}
	if s.shape.ACLs() != len(names) {
		return
	}
	for n, name := range names {
		if name != nameOf(at.use, s.shape, n) {
			return
		}
	}
	a.stacks[at] = s
	for _, index := range s.acls {
		taken[index] = true
	}
}

// indexes returns the ACLs of a stack.
func (a *acls) indexes(at place) []uint32 {
	if s := a.stacks[at]; s != nil {
		return s.acls
	}
	return nil
}

// one returns a shared ACL as a list.
func (a *acls) one(name string) []uint32 {
	if index, ok := a.shared[name]; ok {
		return []uint32{index}
	}
	return nil
}

// heldInput returns the digest of the current input ACL of pods; zero when there is none.
func (a *acls) heldInput(m *mirror.Mirror) entries.Digest {
	if index, ok := a.shared[reflectACL]; ok {
		return m.ACLs[index].Piece.Digest
	}
	return entries.Digest{}
}

// contentIn returns the content of the ACLs of a stack; false when one is gone.
func (s *stack) contentIn(m *mirror.Mirror) (out []entries.Piece, ok bool) {
	for _, index := range s.acls {
		h := m.ACLs[index]
		if h == nil || len(h.Piece.Entries) != h.Piece.Count {
			return nil, false
		}
		out = append(out, h.Piece)
	}
	return out, len(out) > 0
}

// sorted returns the places of stacks in order.
func (a *acls) sorted() []place {
	return slices.SortedFunc(maps.Keys(a.stacks), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.use, b.use))
	})
}

// isOfEarlier reports whether a name is that of a table or guard in tags of earlier versions.
func isOfEarlier(name string) bool {
	_, err := strconv.ParseUint(strings.TrimLeft(name, "li"), 10, 32)
	return len(name) > 1 && strings.ContainsRune("li", rune(name[0])) && err == nil
}
