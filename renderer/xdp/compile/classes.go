package compile

import (
	"cmp"
	"slices"
)

// infraAtom is what may talk with every pod.
const infraAtom atom = 0

// class numbers a set of atoms. Addresses in the same nets have the same class; class 0
// is in none.
type class uint32

// infraClass is that of all addresses that may talk with every pod, whatever else they are in.
const infraClass class = 1

// classDef is one class: the atoms of another one, which surrounds it where it was met first, and
// some more. So a class takes no more than what makes it differ, however many nets hold it.
type classDef struct {
	sum    sum
	parent class
	own    own
	depth  uint32 // how many classes are around it
	live   bool
	used   bool // an address has or had the class, so every table has a row for it
}

// classes interns sets of atoms.
type classes struct {
	owns  owns
	all   []classDef // by class
	ids   map[sum]class
	free  []class
	freed []class // usable once the next plan has been carried out
	added []class // used since the last plan
	live  int     // how many there are
	swept int     // how many there were after the last sweep
	slack int     // how many more there may be before the next, beside twice as many
}

func newClasses() *classes {
	c := &classes{owns: newOwns(), ids: map[sum]class{}, slack: 1024}
	c.owns.name(infraAtom)
	c.all = append(c.all, classDef{live: true}, classDef{sum: c.owns.sums[infraAtom], own: c.owns.intern([]atom{infraAtom}), depth: 1, live: true})
	c.ids[sum{}], c.ids[c.all[infraClass].sum] = 0, infraClass
	c.live = len(c.all)
	c.use(0)
	return c
}

// count is one more than the highest class.
func (c *classes) count() int { return len(c.all) }

// join returns the class of addresses that are in the atoms of both.
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
	c.ids[s] = id
	c.live++
	return id
}

// use notes that an address has the class.
func (c *classes) use(id class) uint32 {
	if d := &c.all[id]; !d.used {
		d.used = true
		c.added = append(c.added, id)
	}
	return uint32(id)
}

// byDepth sorts classes so that those around others come first.
func (c *classes) byDepth(ids []class) []class {
	slices.SortFunc(ids, func(a, b class) int {
		return cmp.Or(cmp.Compare(c.all[a].depth, c.all[b].depth), cmp.Compare(a, b))
	})
	return ids
}

// inUse returns the classes that addresses have.
func (c *classes) inUse() (ids []class) {
	for id := range c.all {
		if c.all[id].used {
			ids = append(ids, class(id))
		}
	}
	return ids
}

// anyUsed reports whether an address may have one of some classes.
func (c *classes) anyUsed(first class, n int) bool {
	end := min(int(first)+n, len(c.all))
	return int(first) < end && slices.ContainsFunc(c.all[first:end], func(d classDef) bool { return d.used })
}

// isOverfull reports whether there may be so many classes that nothing has that sweeping pays.
func (c *classes) isOverfull() bool { return c.live > 2*c.swept+c.slack }

// sweep frees all classes that are not marked, nor around one that is, and returns those that were
// used and are not any more.
func (c *classes) sweep(marked []bool) (dead []class) {
	marked[0], marked[infraClass] = true, true
	around := make([]bool, len(c.all))
	for id := range c.all {
		for at := class(id); marked[id] && at != 0 && !around[at]; at = c.all[at].parent {
			around[at] = true
		}
	}
	for id := range c.all {
		d := &c.all[id]
		if marked[id] || !d.live {
			continue
		}
		if d.used {
			dead = append(dead, class(id))
			d.used = false
		}
		if around[id] {
			continue
		}
		c.freed = append(c.freed, class(id))
		delete(c.ids, d.sum)
		c.owns.letGo(d.own)
		*d = classDef{}
		c.live--
	}
	c.added = slices.DeleteFunc(c.added, func(id class) bool { return !c.all[id].used })
	c.swept = c.live
	return dead
}
