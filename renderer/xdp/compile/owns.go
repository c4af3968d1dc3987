package compile

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"slices"
)

// atom numbers a net that rules name: a prefix or an address set.
type atom uint32

// sum identifies a set of atoms. It is the sum of the random numbers of its atoms. Two sets have
// the same sum with a probability of 2^-128. An attacker who chooses sets cannot raise it, because
// the numbers are secret.
type sum [2]uint64

func (s sum) plus(o sum) sum { return sum{s[0] + o[0], s[1] + o[1]} }

// newSum returns a random number for an atom.
func newSum() sum {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return sum{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// own numbers the set of atoms with exactly one prefix. 0 is the empty set.
type own uint32

// ownSet is a set of atoms that an own numbers.
type ownSet struct {
	atoms []atom // sorted
	sum   sum
	uses  int // by prefixes and classes
}

// owns interns sets of atoms.
type owns struct {
	sets []ownSet // by own
	ids  map[sum]own
	free []own
	sums []sum // by atom
}

func newOwns() owns {
	return owns{sets: []ownSet{{uses: 1}}, ids: map[sum]own{{}: 0}}
}

// name gives an atom a new random number.
func (o *owns) name(a atom) {
	for len(o.sums) <= int(a) {
		o.sums = append(o.sums, sum{})
	}
	o.sums[a] = newSum()
}

// intern returns the set of some atoms, and adds a use. It keeps the slice.
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

// letGo removes a use of a set.
func (o *owns) letGo(id own) {
	set := &o.sets[id]
	if set.uses--; set.uses > 0 || id == 0 {
		return
	}
	delete(o.ids, set.sum)
	*set = ownSet{}
	o.free = append(o.free, id)
}

// joined is an atom that gets (in) or loses a prefix.
type joined struct {
	atom atom
	in   bool
}

// change applies changes to a set. It removes a use of the old set, and returns the new set with a
// use. The last change of an atom counts. It reorders the changes.
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
