package main

import (
	"fmt"
	"hash/fnv"
)

// rng is a splitmix64 generator. It is our own, because the sequences of math/rand
// may change with the Go version and the bytes of a workload must not.
type rng struct{ state uint64 }

// newRNG returns the stream of that name. Every part of a workload draws from a
// stream of its own, so that a change in one part leaves the others as they are.
func newRNG(seed uint64, name string) *rng {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%s", seed, name) // a hash never fails
	return &rng{h.Sum64()}
}

// next draws 64 bits.
func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return finalise(r.state)
}

// below draws a number of 0 to k-1.
func (r *rng) below(k int) int { return int(((r.next() >> 32) * uint64(k)) >> 32) }

// oneIn is true once in k draws.
func (r *rng) oneIn(k int) bool { return r.below(k) == 0 }

// pick draws an element of a list that is not empty.
func pick[T any](r *rng, list []T) T { return list[r.below(len(list))] }

// finalise is the output function of splitmix64: it spreads every bit of z.
func finalise(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
