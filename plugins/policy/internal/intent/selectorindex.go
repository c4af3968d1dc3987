package intent

import (
	"iter"
	"slices"
)

// linearSelectors is the number of selectors up to which scanning them is cheaper, in time and
// memory, than an index.
const linearSelectors = 16

// SelectorIndex finds which of many selectors match some labels, without evaluating all of them.
// The zero value is empty. T identifies a selector; an item is added at most once.
//
// Every selector is indexed under one of its positive requirements (In or Exists), its pivot: the
// one whose bucket had the fewest selectors when it was added. If the pivot were chosen by kind or
// order, one popular label could attract every selector. Selectors without a positive requirement
// are always evaluated.
type SelectorIndex[T comparable] struct {
	few  []selectorItem[T] // while there are few of them
	many *pivots[T]        // else
}

type selectorItem[T comparable] struct {
	sel  *Selector
	item T
}

type pivots[T comparable] struct {
	n      int
	chosen map[T]int // index of the pivot requirement; -1: none
	labels map[Label][]selectorItem[T]
	keys   map[string][]selectorItem[T]
	rest   []selectorItem[T]
}

// Len returns the number of selectors.
func (x *SelectorIndex[T]) Len() int {
	if x.many != nil {
		return x.many.n
	}
	return len(x.few)
}

// Add indexes an item under its selector.
func (x *SelectorIndex[T]) Add(sel *Selector, item T) {
	it := selectorItem[T]{sel, item}
	if x.many == nil && len(x.few) < linearSelectors {
		x.few = append(x.few, it)
		return
	}
	if x.many == nil {
		x.many = &pivots[T]{
			chosen: map[T]int{},
			labels: map[Label][]selectorItem[T]{},
			keys:   map[string][]selectorItem[T]{},
		}
		for _, f := range x.few {
			x.many.add(f)
		}
		x.few = nil
	}
	x.many.add(it)
}

// Remove removes an item that was added with the selector.
func (x *SelectorIndex[T]) Remove(sel *Selector, item T) {
	it := selectorItem[T]{sel, item}
	if x.many == nil {
		x.few = dropItem(x.few, it)
		return
	}
	x.many.remove(it)
	if x.many.n == 0 {
		x.many = nil
	}
}

// All returns every item, in no particular order.
func (x *SelectorIndex[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, it := range x.few {
			if !yield(it.item) {
				return
			}
		}
		if x.many == nil {
			return
		}
		for item := range x.many.chosen {
			if !yield(item) {
				return
			}
		}
	}
}

// Matching returns the items whose selectors match the labels, each once, in no particular order.
// The index must not be modified meanwhile.
func (x *SelectorIndex[T]) Matching(l Labels) iter.Seq[T] {
	return func(yield func(T) bool) {
		if x.many == nil {
			yieldMatching(x.few, l, yield)
			return
		}
		for _, kv := range l {
			if !yieldMatching(x.many.labels[kv], l, yield) {
				return
			}
			if len(x.many.keys) > 0 && !yieldMatching(x.many.keys[kv.Key], l, yield) {
				return
			}
		}
		yieldMatching(x.many.rest, l, yield)
	}
}

func yieldMatching[T comparable](items []selectorItem[T], l Labels, yield func(T) bool) bool {
	for _, it := range items {
		if it.sel.Matches(l) && !yield(it.item) {
			return false
		}
	}
	return true
}

func (p *pivots[T]) add(it selectorItem[T]) {
	best, size := -1, 0
	for i, r := range it.sel.Requirements() {
		if n, ok := p.bucketSize(r); ok && (best < 0 || n < size) {
			best, size = i, n
		}
	}
	p.n++
	p.chosen[it.item] = best
	p.edit(it, best, func(b []selectorItem[T]) []selectorItem[T] { return append(b, it) })
}

func (p *pivots[T]) remove(it selectorItem[T]) {
	pivot, ok := p.chosen[it.item]
	if !ok {
		return
	}
	p.n--
	delete(p.chosen, it.item)
	p.edit(it, pivot, func(b []selectorItem[T]) []selectorItem[T] { return dropItem(b, it) })
}

// bucketSize returns how many selectors the requirement's buckets hold, and
// whether it can be a pivot.
func (p *pivots[T]) bucketSize(r Requirement) (n int, ok bool) {
	switch r.Operator {
	case In:
		for _, v := range r.Values {
			n += len(p.labels[Label{r.Key, v}])
		}
		return n, true
	case Exists:
		return len(p.keys[r.Key]), true
	case NotIn, DoesNotExist:
	}
	return 0, false
}

// edit replaces the buckets of an item's pivot; it drops empty buckets.
func (p *pivots[T]) edit(it selectorItem[T], pivot int, f func([]selectorItem[T]) []selectorItem[T]) {
	if pivot < 0 {
		p.rest = f(p.rest)
		return
	}
	r := it.sel.reqs[pivot]
	if r.Operator == Exists {
		setBucket(p.keys, r.Key, f(p.keys[r.Key]))
		return
	}
	for _, v := range r.Values {
		kv := Label{r.Key, v}
		setBucket(p.labels, kv, f(p.labels[kv]))
	}
}

func setBucket[K comparable, T any](m map[K][]T, k K, bucket []T) {
	if len(bucket) == 0 {
		delete(m, k)
		return
	}
	m[k] = bucket
}

// dropItem removes an item; the order of buckets does not matter.
func dropItem[T comparable](items []selectorItem[T], it selectorItem[T]) []selectorItem[T] {
	i := slices.IndexFunc(items, func(o selectorItem[T]) bool { return o.item == it.item })
	if i < 0 {
		return items
	}
	last := len(items) - 1
	items[i] = items[last]
	items[last] = selectorItem[T]{}
	return items[:last]
}
