package compile

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"slices"
)

// atom numbers a net that rules name: a prefix or an address set.
type atom uint32

// sum identifies a set of atoms: the random numbers of its atoms, added up. Two sets have one sum
// with a probability of 2^-128, also for who chooses sets, because nobody knows the numbers.
type sum [2]uint64

func (s sum) plus(o sum) sum { return sum{s[0] + o[0], s[1] + o[1]} }

// newSum returns the number of an atom.
func newSum() sum {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return sum{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// own numbers the set of the atoms that have exactly a prefix. 0 is the empty set.
type own uint32

// ownSet is such a set.
type ownSet struct {
	atoms []atom // sorted
	sum   sum
	uses  int // by prefixes and classes
}

// owns keeps one of equal sets.
type owns struct {
	sets []ownSet // by own
	ids  map[sum]own
	free []own
	sums []sum // by atom
}

func newOwns() owns {
	return owns{sets: []ownSet{{uses: 1}}, ids: map[sum]own{{}: 0}}
}

// name gives an atom a number that no set has yet.
func (o *owns) name(a atom) {
	for len(o.sums) <= int(a) {
		o.sums = append(o.sums, sum{})
	}
	o.sums[a] = newSum()
}

// intern returns the set of some atoms, which it keeps, for one more use.
func (o *owns) intern(atoms []atom) own {
	var s sum
	for _, a := range atoms {
		s = s.plus(o.sums[a])
	}
	id, ok := o.ids[s]
	if !ok {
		id = own(len(o.sets))
		if n := len(o.free); n > 0 {
			id, o.free = o.free[n-1], o.free[:n-1]
			o.sets[id] = ownSet{atoms: atoms, sum: s}
		} else {
			o.sets = append(o.sets, ownSet{atoms: atoms, sum: s})
		}
		o.ids[s] = id
	}
	o.sets[id].uses++
	return id
}

// letGo takes a use back.
func (o *owns) letGo(id own) {
	set := &o.sets[id]
	if set.uses--; set.uses > 0 || id == 0 {
		return
	}
	delete(o.ids, set.sum)
	*set = ownSet{}
	o.free = append(o.free, id)
}

// joined is whether an atom has a prefix from now on.
type joined struct {
	atom atom
	in   bool
}

// change takes back a use of a set, and returns the set that some changes make of it. The last one
// of an atom counts. It reorders the changes.
func (o *owns) change(old own, changes []joined) own {
	slices.SortStableFunc(changes, func(a, b joined) int { return cmp.Compare(a.atom, b.atom) })
	was := o.sets[old].atoms
	atoms := make([]atom, 0, len(was)+len(changes))
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].atom == c.atom {
			continue
		}
		for len(was) > 0 && was[0] < c.atom {
			atoms, was = append(atoms, was[0]), was[1:]
		}
		if len(was) > 0 && was[0] == c.atom {
			was = was[1:]
		}
		if c.in {
			atoms = append(atoms, c.atom)
		}
	}
	now := o.intern(append(atoms, was...))
	o.letGo(old)
	return now
}
