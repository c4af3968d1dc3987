package graph

import (
	"slices"
	"strings"
)

// alike is what edges have in common that one edge may stand for.
type alike struct {
	state State
	ports string
}

// pair is the ends of an edge.
type pair struct{ from, to int }

// merging is the edges of one state and the same ports.
type merging struct {
	*builder
	children map[int][]int
	of       map[pair]Edge
	out      []Edge
}

// merge has one edge stand for those of all workloads of a namespace: what a picture with one arrow
// from each of twenty workloads to the DNS server means is that the namespace reaches it.
func (b *builder) merge() {
	children := map[int][]int{}
	for i, n := range b.Nodes {
		if n.Parent >= 0 {
			children[n.Parent] = append(children[n.Parent], i)
		}
	}
	byKind := map[alike][]Edge{}
	var order []alike
	for _, e := range b.Edges {
		k := alike{e.State, strings.Join(e.Ports, "\n")}
		if byKind[k] == nil {
			order = append(order, k)
		}
		byKind[k] = append(byKind[k], e)
	}
	var out []Edge
	for _, k := range order {
		m := merging{builder: b, children: children, of: map[pair]Edge{}}
		for _, e := range byKind[k] {
			m.of[pair{e.From, e.To}] = e
		}
		m.run()
		out = append(out, m.out...)
	}
	b.Edges = out
	b.join() // an edge of a namespace may have several lists of ports
}

// run merges whole namespaces first, and single workloads with them then.
func (m *merging) run() {
	parents := sortedKeys(m.children)
	for _, a := range parents {
		for _, b := range parents {
			m.replace(a, b, m.children[a], m.children[b])
		}
	}
	var froms, tos []int
	for _, p := range sortedPairs(m.of) {
		froms, tos = append(froms, p.from), append(tos, p.to)
	}
	for _, a := range parents {
		for _, t := range distinct(tos) {
			if m.Nodes[t].Parent != a && t != a {
				m.replace(a, t, m.children[a], []int{t})
			}
		}
		for _, s := range distinct(froms) {
			if m.Nodes[s].Parent != a && s != a {
				m.replace(s, a, []int{s}, m.children[a])
			}
		}
	}
	for _, p := range sortedPairs(m.of) {
		m.out = append(m.out, m.of[p])
	}
}

// replace has one edge stand for those of all pairs, if there are all of them, and several. That a
// workload talks to itself is not needed.
func (m *merging) replace(from, to int, sources, targets []int) {
	var found []pair
	for _, s := range sources {
		for _, t := range targets {
			_, ok := m.of[pair{s, t}]
			if !ok && s != t {
				return
			}
			if ok {
				found = append(found, pair{s, t})
			}
		}
	}
	if len(found) < 2 {
		return
	}
	e := Edge{From: from, To: to, State: m.of[found[0]].State}
	for _, p := range found {
		e.add(m.of[p])
		delete(m.of, p)
	}
	m.out = append(m.out, e)
}

func sortedKeys[V any](of map[int]V) (out []int) {
	for k := range of {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func sortedPairs(of map[pair]Edge) (out []pair) {
	for p := range of {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b pair) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	return out
}

func distinct(all []int) []int {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}
