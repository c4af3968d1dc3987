package vswitch

import "iter"

// pool hands out small indices as VPP does: the index that was freed last is
// used first, and a pool never shrinks. Clients that keep indices across a
// deletion therefore meet here the same aliases as with the real thing.
type pool[T any] struct {
	items []*T
	free  []uint32
}

// next returns the index that the next put will use.
func (p *pool[T]) next() uint32 {
	if n := len(p.free); n > 0 {
		return p.free[n-1]
	}
	return uint32(len(p.items))
}

// put stores an item under the index that next announced.
func (p *pool[T]) put(item *T) {
	if n := len(p.free); n > 0 {
		p.items[p.free[n-1]] = item
		p.free = p.free[:n-1]
		return
	}
	p.items = append(p.items, item)
}

// get returns the item, nil when the index is free.
func (p *pool[T]) get(i uint32) *T {
	if uint64(i) >= uint64(len(p.items)) {
		return nil
	}
	return p.items[i]
}

// remove frees an index that is in use.
func (p *pool[T]) remove(i uint32) {
	p.items[i] = nil
	p.free = append(p.free, i)
}

// all iterates over what is in use, by index.
func (p *pool[T]) all() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for i, item := range p.items {
			if item != nil && !yield(uint32(i), item) {
				return
			}
		}
	}
}
