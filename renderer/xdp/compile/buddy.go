package compile

import (
	"math/bits"
)

// buddy is a buddy allocator for ranges of numbers. It grows as needed, and merges freed ranges.
type buddy struct {
	free  [32][]uint32 // heads of free ranges by order; stale ones included
	order []uint8      // 1 + order of the free range that begins here, else 0
	used  int          // numbers in use
}

func orderOf(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

// allocate returns the first number of a free range of at least n.
func (b *buddy) allocate(n int) uint32 {
	want := orderOf(n)
	for {
		for o := want; o < len(b.free); o++ {
			if head, ok := b.pop(o); ok {
				for ; o > want; o-- { // the upper half stays free
					b.push(head+1<<(o-1), o-1)
				}
				b.used += 1 << want
				return head
			}
		}
		b.grow(want)
	}
}

// give frees a range.
func (b *buddy) give(head uint32, n int) {
	o := orderOf(n)
	b.used -= 1 << o
	for {
		mate := head ^ 1<<o
		if int(mate) >= len(b.order) || b.order[mate] != uint8(o+1) {
			break
		}
		b.order[mate] = 0
		head &^= 1 << o
		o++
	}
	b.push(head, o)
}

func (b *buddy) push(head uint32, o int) {
	b.order[head] = uint8(o + 1)
	b.free[o] = append(b.free[o], head)
}

func (b *buddy) pop(o int) (uint32, bool) {
	for l := b.free[o]; len(l) > 0; l = b.free[o] {
		head := l[len(l)-1]
		b.free[o] = l[:len(l)-1]
		if int(head) < len(b.order) && b.order[head] == uint8(o+1) {
			b.order[head] = 0
			return head, true
		}
	}
	return 0, false
}

// grow doubles the numbers, at least so that a range of the order fits.
func (b *buddy) grow(o int) {
	size := len(b.order)
	if size == 0 {
		b.order = make([]uint8, 1<<o)
		b.push(0, o)
		return
	}
	b.order = append(b.order, make([]uint8, size)...)
	b.used += size // which give subtracts
	b.give(uint32(size), size)
}

// size returns how many numbers there are.
func (b *buddy) size() int { return len(b.order) }

// shrink halves the numbers while the upper half is unused, but keeps so many.
func (b *buddy) shrink(least int) {
	for {
		half := len(b.order) / 2
		if half < least || int(b.order[half]) != 1+orderOf(half) {
			return
		}
		b.order = b.order[:half:half]
	}
}
