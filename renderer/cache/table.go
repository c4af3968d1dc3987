package cache

import (
	"encoding/hex"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Table is an ordered list of rules that decides all traffic it is asked about;
// the first rule that matches decides. It is immutable.
type Table struct {
	Digest renderer.Digest  `json:"digest"`
	Rules  []api.ContivRule `json:"rules"`

	// Origins says where each rule came from. Pods that share a table may have
	// their rules from different policies: these are the origins for the first pod.
	Origins [][]api.Origin `json:"origins,omitempty"`

	// Pods share the table; sorted. Empty for the global table.
	Pods []api.PodID `json:"pods,omitempty"`

	// Sets are the sets that the rules name; sorted.
	Sets []api.SetID `json:"sets,omitempty"`

	// Parts are the indexes of rules where a part of the global table begins. Each
	// part but the last is about other pods than every other part.
	Parts []int `json:"parts,omitempty"`
}

// Name is "global", or "local:" and the digest.
func (t *Table) Name() string {
	if t.Parts != nil {
		return "global"
	}
	return "local:" + t.Digest.String()
}

// entry is a local table as staged, with the pods that have it.
type entry struct {
	digest renderer.Digest
	rules  []api.ContivRule
	sets   []api.SetID
	pods   map[api.PodID]*pod
	table  *Table // nil when it must be made anew
}

// entries are the local tables as staged.
type entries map[renderer.Digest]*entry

// bind gives a pod a table (nil for none).
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

// of returns the staged table with the content of a block.
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

// snapshot returns the immutable form of a staged table.
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

// setsOf returns the sets that rules name, sorted.
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

// PodsOf returns the name of the set of the pods that have a list of rules, which the rules of
// tables have in place of these pods.
func PodsOf(d renderer.Digest) api.SetID { return api.NewSetID("pods-of " + hex.EncodeToString(d[:])) }
