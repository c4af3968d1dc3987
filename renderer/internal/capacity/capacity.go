// Package capacity decides which rule lists a dataplane of limited size takes. It is one pure
// function: the outcome depends on the lists and the limits only, not on what was there before.
//
// # Invariants
//
//   - A namespace below its even part of the capacity is never refused anything because of others.
//   - The lists that are taken cost no more than the capacity together.
//   - The cheapest lists of a namespace are taken first. So of many lists that are too large
//     together only the dearest are closed.
package capacity

import (
	"cmp"
	"slices"
)

// List is a rule list that pods want.
type List[K any] struct {
	Key  K
	Cost int // what it takes, or any number above Limits.List if that is more
	// Namespaces are those of its pods, without duplicates. Each of them pays for the list, and the
	// list is closed only if all of them refuse it.
	Namespaces []string
}

// Limits are what lists may cost. 0 is no limit.
type Limits struct {
	List      int // one list
	Namespace int // the lists of one namespace
	Total     int // all lists: the capacity of the dataplane
}

// Limit is a limit that closes a list.
type Limit uint8

// The limits. None closes nothing.
const (
	None Limit = iota
	OneList
	OneNamespace // its own limit, or its part of the capacity because all namespaces want more than that
)

// Refusal is why a list is closed.
type Refusal struct {
	Limit Limit
	Most  int // how much the list, or its namespaces, may cost
}

// Refused returns the lists that are closed.
//
// A list above its own limit is closed. In each namespace the others are taken from the cheapest
// on, and of equal cost in the order of compare, up to the level. The level is the limit of a
// namespace or, if all lists cost more than the capacity, and that is less, the largest one at which
// the wishes of namespaces, cut to it, fit into the capacity.
func Refused[K comparable](lists []List[K], l Limits, compare func(a, b K) int) map[K]Refusal {
	out := map[K]Refusal{}
	lists = slices.Clone(lists)
	slices.SortFunc(lists, func(a, b List[K]) int { return cmp.Or(cmp.Compare(a.Cost, b.Cost), compare(a.Key, b.Key)) })
	wants, total := map[string]int{}, 0
	for _, x := range lists {
		if l.List > 0 && x.Cost > l.List {
			out[x.Key] = Refusal{OneList, l.List}
			continue
		}
		total += x.Cost
		for _, namespace := range x.Namespaces {
			wants[namespace] += x.Cost
		}
	}
	if total <= l.Total {
		l.Total = 0 // though lists of several namespaces count for each of them
	}
	level, limited := levelOf(wants, l)
	if !limited {
		return out
	}
	taken := map[string]int{}
	for _, x := range lists {
		if l.List > 0 && x.Cost > l.List {
			continue
		}
		refused := len(x.Namespaces) > 0
		for _, namespace := range x.Namespaces {
			if taken[namespace] += x.Cost; taken[namespace] <= level {
				refused = false
			}
		}
		if refused {
			out[x.Key] = Refusal{OneNamespace, level}
		}
	}
	return out
}

// levelOf returns how much each namespace may take. It returns false if all may take what they want.
func levelOf(wants map[string]int, l Limits) (level int, limited bool) {
	costs := make([]int, 0, len(wants))
	for _, n := range wants {
		costs = append(costs, n)
		limited = limited || l.Namespace > 0 && n > l.Namespace
	}
	if l.Total <= 0 {
		return l.Namespace, limited
	}
	slices.Sort(costs)
	left := l.Total
	for i, n := range costs { // those below the level leave the others more than an even part
		if level = left / (len(costs) - i); n > level {
			break
		}
		left -= n
	}
	if l.Namespace > 0 {
		level = min(level, l.Namespace)
	}
	return level, true
}
