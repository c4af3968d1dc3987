package cache

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
)

// hashIndex maps hashes to ids. It stores no keys: the caller compares. Several ids may have equal
// hashes, also because they have equal keys. It takes 8 bytes per slot and has no pointers. A
// map of the names of pods in its place takes 3 MiB more of 22 on L (BenchmarkWorkloadInit).
//
// It is an open addressing table with linear probing. Removal shifts entries back, so there are no
// tombstones. The load is at most 3/4.
type hashIndex struct {
	slots []slot // a power of two
	n     int
}

type slot struct{ hash, id uint32 } // id+1; 0: free

// seed differs between processes; no result of the cache depends on it.
var seed = maphash.MakeSeed()

func hashString(h uint64, s string) uint64 {
	return (bits.RotateLeft64(h, 23) ^ maphash.String(seed, s)) * 0x9e3779b97f4a7c15
}

func fold(h uint64) uint32 { return uint32(h>>32) ^ uint32(h) }

func hashAddr(a netip.Addr) uint32 {
	b := a.As16()
	h := uint64(0)
	for i := 0; i < 16; i += 8 {
		v := uint64(b[i])<<56 | uint64(b[i+1])<<48 | uint64(b[i+2])<<40 | uint64(b[i+3])<<32 |
			uint64(b[i+4])<<24 | uint64(b[i+5])<<16 | uint64(b[i+6])<<8 | uint64(b[i+7])
		h = (bits.RotateLeft64(h, 29) ^ v) * 0x9e3779b97f4a7c15
	}
	return fold(h)
}

// find returns the first id with the hash for which eq holds.
func (x *hashIndex) find(hash uint32, eq func(id uint32) bool) (uint32, bool) {
	if x.n == 0 {
		return 0, false
	}
	mask := uint32(len(x.slots) - 1)
	for i := hash & mask; x.slots[i].id != 0; i = (i + 1) & mask {
		if s := x.slots[i]; s.hash == hash && eq(s.id-1) {
			return s.id - 1, true
		}
	}
	return 0, false
}

func (x *hashIndex) insert(hash, id uint32) {
	if 4*(x.n+1) > 3*len(x.slots) {
		x.resize(max(16, 2*len(x.slots)))
	}
	x.place(slot{hash, id + 1})
	x.n++
}

func (x *hashIndex) place(s slot) {
	mask := uint32(len(x.slots) - 1)
	i := s.hash & mask
	for x.slots[i].id != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = s
}

func (x *hashIndex) reserve(n int) {
	size := 16
	for 4*n > 3*size {
		size *= 2
	}
	if size > len(x.slots) {
		x.resize(size)
	}
}

func (x *hashIndex) resize(size int) {
	old := x.slots
	x.slots = make([]slot, size)
	for _, s := range old {
		if s.id != 0 {
			x.place(s)
		}
	}
}

// remove removes the entry of an id, which must exist.
func (x *hashIndex) remove(hash, id uint32) {
	if x.n == 0 {
		return
	}
	mask := uint32(len(x.slots) - 1)
	i := hash & mask
	for x.slots[i] != (slot{hash, id + 1}) {
		if x.slots[i].id == 0 {
			return
		}
		i = (i + 1) & mask
	}
	x.n--
	for j := (i + 1) & mask; x.slots[j].id != 0; j = (j + 1) & mask {
		// An entry may move back to i unless its home lies behind i, up to j.
		if home := x.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i] = slot{}
}
