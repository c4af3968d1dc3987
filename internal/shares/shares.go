// Package shares determines which items exceed their namespaces' share of a limited resource, so
// that the namespaces that take most are limited first.
package shares

import (
	"math"
	"slices"
)

// owner sums up the items of a namespace.
type owner struct{ taken, items int }

// quota returns how much each item may take.
func (o *owner) quota(share int) int {
	if o.taken <= share {
		return math.MaxInt
	}
	return share / o.items
}

// Exceeded returns the items that exceed their limit, each with the share that its namespaces had.
// takes is what each item takes, and owners the namespaces that have it, which divide its costs. It
// depends on these only.
//
// In a namespace that takes more than its share, each item may take an equal part of the share. An
// item exceeds its limit if it takes more than that in all of its namespaces. While the other items
// take more than all together, the share is halved.
func Exceeded[T comparable](share, all int, takes map[T]int, owners map[T][]string) map[T]int {
	sums := map[string]*owner{}
	for x, n := range takes {
		for _, name := range owners[x] {
			if sums[name] == nil {
				sums[name] = &owner{}
			}
			if n > 0 {
				sums[name].taken += n / len(owners[x])
				sums[name].items++
			}
		}
	}
	for ; ; share /= 2 {
		out, left := map[T]int{}, 0
		for x, n := range takes {
			if slices.ContainsFunc(owners[x], func(name string) bool { return n <= sums[name].quota(share) }) {
				left += n
			} else if n > 0 {
				out[x] = share
			}
		}
		if left <= all || share <= 1 {
			return out
		}
	}
}
