package compile

import (
	"cmp"
	"slices"
)

// infraAtom is the atom of the addresses that may talk to every pod.
const infraAtom atom = 0

// class numbers a set of atoms. Addresses in the same nets have the same class. Class 0 is the
// empty set.
type class uint32

// infraClass is the class of all addresses that may talk to every pod, whatever other nets hold
// them.
const infraClass class = 1

// classDef is one class: the atoms of its parent and some more. The parent is the class of the
// surrounding prefix where this class was found first. So a class stores its difference to the
// parent only, however many nets hold it.
type classDef struct {
	sum      sum
	parent   class
	own      own
	depth    uint32 // number of ancestors
	prefixes int    // that have the class
	kids     int    // classes whose parent it is
	live     bool
	used     bool // a prefix has the class, so every table has a row for it
	free     bool // the number may be given to another class
}

// classes interns sets of atoms.
type classes struct {
	owns  owns
	all   []classDef // by class
	ids   map[sum]class
	free  []class
	freed []class // free once the next plan has been carried out
	added []class // classes that became used since the last plan
	idle  []class // classes that lost a last prefix since then
	live  int     // number of classes
}

func newClasses() *classes {
	c := &classes{owns: newOwns(), ids: map[sum]class{}}
	c.owns.name(infraAtom)
	c.all = append(c.all, classDef{live: true}, classDef{sum: c.owns.sums[infraAtom], own: c.owns.intern([]atom{infraAtom}), depth: 1, live: true, kids: 1}) // 1: it stays without prefixes
	c.ids[sum{}], c.ids[c.all[infraClass].sum] = 0, infraClass
	c.live = len(c.all)
	c.move(0, 0)
	return c
}

// count returns the highest class plus one.
func (c *classes) count() int { return len(c.all) }

// join returns the class of addresses that are in the atoms of a class and in some more.
func (c *classes) join(parent class, of own) class {
	atoms := c.owns.sets[of].atoms
	switch {
	case len(atoms) == 0:
		return parent
	case parent == infraClass || atoms[0] == infraAtom:
		return infraClass
	}
	s := c.all[parent].sum.plus(c.owns.sets[of].sum)
	if id, ok := c.ids[s]; ok {
		return id
	}
	c.owns.sets[of].uses++
	def := classDef{sum: s, parent: parent, own: of, depth: c.all[parent].depth + 1, live: true}
	id := class(len(c.all))
	if n := len(c.free); n > 0 {
		id, c.free = c.free[n-1], c.free[:n-1]
		c.all[id] = def
	} else {
		c.all = append(c.all, def)
	}
	c.all[parent].kids++
	c.ids[s] = id
	c.live++
	return id
}

// move records that a prefix has another class than before; 0 before is none.
func (c *classes) move(before, now class) {
	d := &c.all[now]
	if d.prefixes++; !d.used {
		d.used = true
		c.added = append(c.added, now)
	}
	c.leave(before)
}

// leave records that a prefix with a class is gone; 0 is none.
func (c *classes) leave(before class) {
	if before == 0 {
		return
	}
	if d := &c.all[before]; d.prefixes > 1 {
		d.prefixes--
	} else {
		d.prefixes = 0
		c.idle = append(c.idle, before)
	}
}

// byDepth sorts classes by depth, so that ancestors come first.
func (c *classes) byDepth(ids []class) []class {
	slices.SortFunc(ids, func(a, b class) int {
		return cmp.Or(cmp.Compare(c.all[a].depth, c.all[b].depth), cmp.Compare(a, b))
	})
	return ids
}

// living returns all classes, ancestors first, those without prefixes included.
func (c *classes) living() []class {
	ids := make([]class, 0, c.live)
	for id := range c.all {
		if c.all[id].live {
			ids = append(ids, class(id))
		}
	}
	return c.byDepth(ids)
}

// areFree reports whether no packet can have one of some classes.
func (c *classes) areFree(first class, n int) bool {
	end := min(int(first)+n, len(c.all))
	return int(first) >= end || !slices.ContainsFunc(c.all[first:end], func(d classDef) bool { return !d.free })
}

// release makes freed classes available.
func (c *classes) release(freed []class) {
	for _, id := range freed {
		c.all[id].free = true
	}
	c.free = append(c.free, freed...)
}

// around returns the nearest ancestor that prefixes have.
func (c *classes) around(id class) class {
	for at := c.all[id].parent; ; at = c.all[at].parent {
		if c.all[at].used {
			return at
		}
	}
}

// settle returns the classes that became used, ancestors first, and those that are not used any
// more.
func (c *classes) settle() (added, dead []class) {
	for _, id := range c.idle {
		if d := &c.all[id]; d.used && d.prefixes == 0 {
			d.used = false
			dead = append(dead, id)
		}
	}
	added = c.added
	if len(dead) > 0 {
		added = slices.DeleteFunc(added, func(id class) bool { return !c.all[id].used })
	}
	c.added, c.idle = nil, nil
	return c.byDepth(added), dead
}

// bury frees classes that are not used any more, and ancestors that are not needed any more.
func (c *classes) bury(dead []class) {
	for _, id := range dead {
		for d := &c.all[id]; d.live && !d.used && d.kids == 0; d = &c.all[id] {
			c.freed = append(c.freed, id)
			delete(c.ids, d.sum)
			c.owns.letGo(d.own)
			id = d.parent
			*d = classDef{}
			c.all[id].kids--
			c.live--
		}
	}
}
