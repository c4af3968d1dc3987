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
	// different policies; these are the origins for all of them.
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

func sortedTables(m map[renderer.Digest]*Table) []*Table {
	out := make([]*Table, 0, len(m))
	for _, t := range m {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Table) int { return slices.Compare(a.Digest[:], b.Digest[:]) })
	return out
}
