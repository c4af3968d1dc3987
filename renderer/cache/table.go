package cache

import (
	"encoding/hex"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Table is an ordered list of rules that decides all traffic it is asked about; the first match
// decides. It is immutable.
type Table struct {
	Digest renderer.Digest  `json:"digest"`
	Rules  []api.ContivRule `json:"rules"`

	// Origins are the origins of each rule. Pods that share a table may have their rules from
	// different policies; these are the origins for the first pod.
	Origins [][]api.Origin `json:"origins,omitempty"`

	// Pods are the sorted pods that share the table. Empty for the global table.
	Pods []api.PodID `json:"pods,omitempty"`

	// Sets are the sets that the rules name, sorted.
	Sets []api.SetID `json:"sets,omitempty"`

	// Parts are the indexes of the rules that begin a part of the global table. Each part except
	// the last applies to other pods than every other part.
	Parts []int `json:"parts,omitempty"`
}

// Name returns "global" or "local:" and the digest.
func (t *Table) Name() string {
	if t.Parts != nil {
		return "global"
	}
	return "local:" + t.Digest.String()
}

// entry is a staged local table with its pods.
type entry struct {
	digest renderer.Digest
	rules  []api.ContivRule
	sets   []api.SetID
	pods   map[api.PodID]*pod
	table  *Table // nil when it must be rebuilt
}

// entries holds the staged local tables.
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

// of returns the staged table with the content of a block; it creates the table if it is missing.
func (x entries) of(b *block) *entry {
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
		t.Origins = e.pods[t.Pods[0]].built.origins
		e.table = t
	}
	return e.table
}

// setsOf returns the sets that the rules name, sorted.
func setsOf(rules []api.ContivRule) []api.SetID {
	var out []api.SetID
	for _, r := range rules {
		for _, n := range [2]api.Net{r.Src, r.Dst} {
			if n.Set != 0 && (len(out) == 0 || out[len(out)-1] != n.Set) {
				out = append(out, n.Set)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// PodsOf returns the ID of the set of pods that have an opposite list. Rules of tables name it
// instead of these pods.
func PodsOf(d renderer.Digest) api.SetID { return api.NewSetID("pods-of " + hex.EncodeToString(d[:])) }
