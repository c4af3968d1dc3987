// Package pool stores items under indices that it reuses in VPP's order: the index freed last comes
// first.
package pool

import (
	"iter"
	"slices"
)

// Pool allocates small indices like VPP: the last freed index is reused first, and a pool never
// shrinks. Clients that keep indices across a deletion therefore meet the same aliases here as with
// VPP.
type Pool[T any] struct {
	items []*T
	free  []uint32
}

// Next returns the index that the next Put will use.
func (p *Pool[T]) Next() uint32 {
	if n := len(p.free); n > 0 {
		return p.free[n-1]
	}
	return uint32(len(p.items))
}

// Put stores an item under the index that Next returned.
func (p *Pool[T]) Put(item *T) {
	if n := len(p.free); n > 0 {
		p.items[p.free[n-1]] = item
		p.free = p.free[:n-1]
		return
	}
	p.items = append(p.items, item)
}

// Get returns the item, or nil if the index is free.
func (p *Pool[T]) Get(i uint32) *T {
	if uint64(i) >= uint64(len(p.items)) {
		return nil
	}
	return p.items[i]
}

// Set replaces the item of an index that is in use.
func (p *Pool[T]) Set(i uint32, item *T) { p.items[i] = item }

// Remove frees an index that is in use.
func (p *Pool[T]) Remove(i uint32) {
	p.items[i] = nil
	p.free = append(p.free, i)
}

// All iterates over the used indices in order.
func (p *Pool[T]) All() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for i, item := range p.items {
			if item != nil && !yield(uint32(i), item) {
				return
			}
		}
	}
}

// Slots returns a copy of the items by index; free indices are nil.
func (p *Pool[T]) Slots() []*T { return slices.Clone(p.items) }
