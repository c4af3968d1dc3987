package renderer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Capacity is what rule lists take of a resource of a dataplane, and what they may take. What would
// exceed it is closed.
type Capacity struct {
	Resource  string // what is counted, as in "entries"
	List      Share  // of the list that takes most
	Namespace Share  // of the lists of the namespace that takes most
	Of        string // that namespace
	Total     Share  // of all lists
}

// Share is a part of a resource, without what is closed.
type Share struct {
	Used int
	Most int // 0: not limited
}

// Closed is a policy with rules that a dataplane has no room for.
type Closed struct {
	Policy api.PolicyID
	Reason string // which limit it is, and what helps
}

// ClosedIn returns the policies that are reported because of a limit, sorted.
func ClosedIn(all []Unenforced) (out []Closed) {
	seen := map[Closed]bool{}
	for _, u := range all {
		if c := (Closed{u.Origin.Policy, u.Reason}); u.Class == api.ClassLimit && !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Closed) int {
		return cmp.Or(a.Policy.Compare(b.Policy), strings.Compare(a.Reason, b.Reason))
	})
	return out
}
