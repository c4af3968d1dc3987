package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// results are what was measured, by the name of the design, what packets are, and addresses.
type results struct {
	sizes []int
	ns    map[key]float64 // of a packet, over an empty program
	best  map[key]took
	bytes map[key]uint64 // of memory
}

// took is the time of a packet in a program, and in an empty one, in ns.
type took struct{ whole, empty float64 }

type key struct {
	design, packets string
	size            int
}

// table prints one kind of addresses.
func table(spec *ebpf.CollectionSpec, kind string, sizes []int, e effort) (results, error) {
	r := results{sizes: sizes, ns: map[key]float64{}, best: map[key]took{}, bytes: map[key]uint64{}}
	for range e.rounds {
		for _, n := range sizes {
			if err := column(spec, kind, n, e.reps, r); err != nil {
				return r, err
			}
		}
	}
	perMode := func(of map[key]float64) func(design) [][]string {
		return func(d design) (rows [][]string) {
			for _, mode := range modes {
				row := []string{d.name + " | " + mode}
				for _, n := range sizes {
					row = append(row, cell(of, key{d.name, mode, n}, func(ns float64) string { return fmt.Sprintf("%.0f", ns) }))
				}
				rows = append(rows, row)
			}
			return rows
		}
	}
	designs := familyOf(kind).designs()
	r.print(kind, "design | packets", "|---|---|", designs, perMode(r.ns))
	ours := slices.DeleteFunc(slices.Clone(designs), func(d design) bool { return d.kind > ownBoth })
	if len(designs) > len(ours) {
		r.print(kind+", of the best rival in %", "design | packets", "|---|---|", ours, perMode(r.shares()))
	}
	r.print(kind+", memory in KiB", "design", "|---|", designs, func(d design) [][]string {
		row := []string{d.name}
		for _, n := range sizes {
			row = append(row, cell(r.bytes, key{d.name, "", n}, func(b uint64) string { return fmt.Sprintf("%d", (b+1023)>>10) }))
		}
		return [][]string{row}
	})
	return r, nil
}

// measured notes what packets took in a round. The best of either counts: the difference of a round
// would be the smaller, the more the empty program was disturbed.
func (r results) measured(k key, now took) {
	if before, ok := r.best[k]; ok {
		now = took{min(before.whole, now.whole), min(before.empty, now.empty)}
	}
	r.best[k], r.ns[k] = now, now.whole-now.empty
}

// cell is what was measured, or says that it was not.
func cell[T any](of map[key]T, k key, text func(T) string) string {
	if v, ok := of[k]; ok {
		return text(v)
	}
	return "–"
}

// shares are how much of the time of its best rival an own design takes, in percent.
func (r results) shares() map[key]float64 {
	out := map[key]float64{}
	for k, ns := range r.ns {
		i := slices.IndexFunc(designs, func(d design) bool { return d.name == k.design })
		if i < 0 || designs[i].kind > ownBoth {
			continue
		}
		for _, d := range designs {
			if rival, ok := r.ns[key{d.name, k.packets, k.size}]; ok && d.kind.rivals(designs[i].kind) {
				out[k] = max(out[k], 100*ns/rival)
			}
		}
	}
	return out
}

// print writes a table with the rows of designs.
func (r results) print(title, first, line string, designs []design, rows func(design) [][]string) {
	fmt.Printf("\n### %s\n\n| %s |", title, first)
	for _, n := range r.sizes {
		fmt.Printf(" %d |", n)
	}
	fmt.Printf("\n%s%s\n", line, strings.Repeat("--:|", len(r.sizes)))
	for _, d := range designs {
		for _, row := range rows(d) {
			fmt.Printf("| %s |\n", strings.Join(row, " | "))
		}
	}
}
