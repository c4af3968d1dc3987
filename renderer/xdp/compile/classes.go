package compile

import (
	"encoding/binary"
	"slices"
)

// atom numbers a net that rules name: a prefix or an address set.
type atom uint32

// infraAtom is what may talk with every pod.
const infraAtom atom = 0

// class numbers a set of atoms. Addresses in the same nets have the same class; class 0
// is in none.
type class uint32

// classes interns sets of atoms.
type classes struct {
	sets  [][]atom // by class, sorted; nil for one that is free
	ids   map[string]class
	joins map[[2]class]class // unions that were asked for
	free  []class
	freed []class // usable once the next plan has been carried out
	used  []bool  // an address has or had the class, so every table has a row for it
	added []class // used since the last plan
	live  int     // how many there are
	swept int     // how many there were after the last sweep
	slack int     // how many more there may be before the next, beside twice as many
}

func newClasses() *classes {
	c := &classes{ids: map[string]class{}, joins: map[[2]class]class{}, slack: 1024}
	c.intern(nil)
	c.use(0)
	return c
}

// count is one more than the highest class.
func (c *classes) count() int { return len(c.sets) }

// intern returns the class of a sorted set of atoms, which it keeps.
func (c *classes) intern(set []atom) class {
	var buf [64]byte
	key := buf[:0]
	for _, a := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(a))
	}
	if id, ok := c.ids[string(key)]; ok {
		return id
	}
	id := class(len(c.sets))
	if n := len(c.free); n > 0 {
		id, c.free = c.free[n-1], c.free[:n-1]
		c.sets[id] = set
	} else {
		c.sets = append(c.sets, set)
		c.used = append(c.used, false)
	}
	c.ids[string(key)] = id
	c.live++
	return id
}

// only returns the class of one atom.
func (c *classes) only(a atom) class { return c.intern([]atom{a}) }

// join returns the class of addresses that are in the atoms of both.
func (c *classes) join(a, b class) class {
	switch {
	case b == 0 || a == b:
		return a
	case a == 0:
		return b
	}
	key := [2]class{min(a, b), max(a, b)}
	if id, ok := c.joins[key]; ok {
		return id
	}
	set := slices.Concat(c.sets[a], c.sets[b])
	slices.Sort(set)
	id := c.intern(slices.Clip(slices.Compact(set)))
	c.joins[key] = id
	return id
}

// without returns the class that lacks an atom.
func (c *classes) without(from class, a atom) class {
	i, ok := slices.BinarySearch(c.sets[from], a)
	if !ok {
		return from
	}
	return c.intern(slices.Delete(slices.Clone(c.sets[from]), i, i+1))
}

// use notes that an address has the class.
func (c *classes) use(id class) uint32 {
	if !c.used[id] {
		c.used[id] = true
		c.added = append(c.added, id)
	}
	return uint32(id)
}

// crowded says whether there may be so many classes that nothing has that sweeping pays.
func (c *classes) crowded() bool { return c.live > 2*c.swept+c.slack }

// sweep frees all classes that are not marked, and returns those that were used.
func (c *classes) sweep(marked []bool) (dead []class) {
	marked[0] = true
	for id := range c.sets {
		if marked[id] || c.sets[id] == nil {
			continue
		}
		c.freed = append(c.freed, class(id))
		if c.used[id] {
			dead = append(dead, class(id))
		}
		c.sets[id], c.used[id] = nil, false
		c.live--
	}
	clear(c.joins)
	clear(c.ids)
	for id, set := range c.sets {
		if set != nil || id == 0 {
			c.rename(class(id), set)
		}
	}
	c.added = slices.DeleteFunc(c.added, func(id class) bool { return !c.used[id] })
	c.swept = c.live
	return dead
}

func (c *classes) rename(id class, set []atom) {
	var key []byte
	for _, a := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(a))
	}
	c.ids[string(key)] = id
}
