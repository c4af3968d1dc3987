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
	// One is what it takes at one place, if it is at several: Limits.List bounds that. 0 is Cost.
	One int
	// Namespaces are those of its pods, without duplicates. Each of them pays for the list, and the
	// list is closed only if all of them refuse it.
	Namespaces []string
}

// one is what Limits.List bounds.
func (x *List[K]) one() int { return cmp.Or(x.One, x.Cost) }

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
	total := 0
	for _, x := range lists {
		if l.List > 0 && x.one() > l.List {
			out[x.Key] = Refusal{OneList, l.List}
		} else {
			total += x.Cost
		}
	}
	if (l.Total <= 0 || total <= l.Total) && (l.Namespace <= 0 || total <= l.Namespace) {
		return out // the usual case
	}
	if total <= l.Total {
		l.Total = 0 // though lists of several namespaces count for each of them
	}
	lists = slices.DeleteFunc(slices.Clone(lists), func(x List[K]) bool { _, no := out[x.Key]; return no })
	slices.SortFunc(lists, func(a, b List[K]) int { return cmp.Or(cmp.Compare(a.Cost, b.Cost), compare(a.Key, b.Key)) })
	wants := map[string]int{}
	for _, x := range lists {
		for _, namespace := range x.Namespaces {
			wants[namespace] += x.Cost
		}
	}
	level, limited := levelOf(wants, l)
	if !limited {
		return out
	}
	taken := map[string]int{}
	for _, x := range lists {
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

// Use is what lists cost.
type Use struct {
	List      int // the dearest one
	Namespace int // the lists of the namespace that has most
	Of        string
	Total     int // all lists
}

// UseOf returns what the lists cost that are not refused.
func UseOf[K comparable](lists []List[K], refused map[K]Refusal) (u Use) {
	takes := map[string]int{}
	for _, x := range lists {
		if _, no := refused[x.Key]; no {
			continue
		}
		u.List = max(u.List, x.one())
		u.Total += x.Cost
		for _, namespace := range x.Namespaces {
			takes[namespace] += x.Cost
		}
	}
	for namespace, n := range takes {
		if n > u.Namespace || n == u.Namespace && namespace < u.Of {
			u.Namespace, u.Of = n, namespace
		}
	}
	return u
}
