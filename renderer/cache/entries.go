package cache

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// entries holds the staged local tables. Pods with equal tables share one: dataplanes count them.
type entries map[renderer.Digest]*entry

// bind assigns a table to a pod; nil means none.
func (x entries) bind(p *pod, e *entry) {
	if p.entry != nil {
		p.entry.table = nil
		if delete(p.entry.pods, p.id); len(p.entry.pods) == 0 && p.entry != e {
			delete(x, p.entry.digest)
		}
	}
	p.entry = e
	if e != nil {
		e.table = nil
		e.pods[p.id] = p
	}
}

// entryFor returns the staged table with the content of a block; it creates the table if it is missing.
func (x entries) entryFor(b *block) *entry {
	if b == nil || b.rules == nil {
		return nil
	}
	e := x[b.digest]
	if e == nil {
		e = &entry{digest: b.digest, rules: b.rules, sets: setsOf(b.rules), pods: make(map[api.PodID]*pod)}
		x[b.digest] = e
	}
	return e
}

// snapshot returns the immutable Table of a staged table.
func (e *entry) snapshot() *Table {
	if e == nil {
		return nil
	}
	if e.table == nil {
		t := &Table{Digest: e.digest, Rules: e.rules, Sets: e.sets, Pods: make([]api.PodID, 0, len(e.pods))}
		for id := range e.pods {
			t.Pods = append(t.Pods, id)
		}
		slices.SortFunc(t.Pods, api.PodID.Compare)
		seen := map[*block]bool{}
		for _, id := range t.Pods {
			if b := e.pods[id].built; !seen[b] {
				seen[b] = true
				t.Origins = withOrigins(t.Origins, b.origins)
			}
		}
		e.table = t
	}
	return e.table
}

// withOrigins returns the origins of both, by rule. It returns the first one, as it is, if that
// has all.
func withOrigins(a, b [][]api.Origin) [][]api.Origin {
	if len(a) == 0 {
		return b
	}
	out := a
	for i := range b {
		both := mergedOrigins(a[i], b[i])
		if len(both) == len(a[i]) {
			continue
		}
		if &out[0] == &a[0] {
			out = slices.Clone(a)
		}
		out[i] = both
	}
	return out
}
