package configurator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// NamespacePairs is the maximum number of pairs of a peer and a port in the NetworkPolicy rules of
// all lists of a namespace's pods, and NodePairs of the lists of all pods. A list has at most that
// many rules of NetworkPolicies, at 120 bytes each; pods with equal policies share their lists.
// Pairs are counted in policies, before a list is generated. Rules of admin policies do not count:
// their authors are responsible for the node.
const (
	NamespacePairs = 1 << 20
	NodePairs      = 2 * NamespacePairs
)

// shares bounds the lists of namespaces: their pairs, and if a dataplane has no address sets its
// entries. A namespace that exceeds a share may use an equal part of it for each of its lists;
// larger lists are closed. While all namespaces together exceed the node's limit, the share is
// halved, so the largest namespaces are limited first. Which lists are closed depends on the
// current policies only, not on their history.
type shares struct {
	bounds []bound
	owners map[string]map[*profile]int // by namespace: how many of its pods have a profile
	// closing reports whether a list was closed: it may fit again when sets lose members
	closing bool
	changed bool // what lists take, since applyShares looked
}

// bound limits what lists take of something.
type bound struct {
	namespace, node int
	of              func(p *profile, pods int) [2]int // what the lists of a profile take
	why             string                            // what a namespace exceeds; has verbs for its name and the share
}

const (
	whyPairs   = "the policies of namespace %s name more than %d pairs of a peer and a port for its pods together, and for this list more than its part, so everything is denied: name fewer ports for fewer peers"
	whyEntries = "the policies of namespace %s take more than %d entries in a dataplane without address sets, which are rules times addresses, and this list more than its part, so everything is denied: select fewer pods, or name fewer ports"
)

func newShares(renderers []renderer.Renderer) shares {
	s := shares{owners: map[string]map[*profile]int{}}
	s.bounds = append(s.bounds, bound{NamespacePairs, NodePairs, func(p *profile, _ int) [2]int { return p.pairs }, whyPairs})
	for _, r := range renderers {
		if x, ok := renderer.As[renderer.Expander](r); ok {
			s.bounds = append(s.bounds, entriesBound(x.Expansion()))
		}
	}
	return s
}

func entriesBound(namespace, node int, perPod bool) bound {
	return bound{namespace, node, func(p *profile, pods int) [2]int {
		if perPod {
			return [2]int{p.entries[0] * pods, p.entries[1] * pods}
		}
		return p.entries
	}, whyEntries}
}

// count records that n more pods of a namespace use a profile.
func (s *shares) count(namespace string, p *profile, n int) {
	s.changed = true
	of := s.owners[namespace]
	if of == nil {
		of = map[*profile]int{}
		s.owners[namespace] = of
	}
	if of[p] += n; of[p] == 0 {
		delete(of, p)
	}
	if len(of) == 0 {
		delete(s.owners, namespace)
	}
}

// owner sums up the lists of a namespace.
type owner struct{ taken, lists int }

// quota returns how much each list may take.
func (o *owner) quota(share int) int {
	if o.taken <= share {
		return math.MaxInt
	}
	return share / o.lists
}

// add counts the lists of a profile, which some namespaces share.
func (o *owner) add(takes [2]int, namespaces int) {
	for _, n := range takes {
		if n > 0 {
			o.taken += n / namespaces
			o.lists++
		}
	}
}

// tooLarge returns, for each direction, why another profile of a namespace cannot have its list: it
// will be closed, unless the transaction also removes others.
func (s *shares) tooLarge(namespace string, p *profile) (why reasons) {
	for _, b := range s.bounds {
		takes, o := b.of(p, 1), owner{}
		if max(takes[0], takes[1]) <= b.namespace/max(2*len(s.owners[namespace])+2, 1) {
			continue // the usual case
		}
		for other, pods := range s.owners[namespace] {
			o.add(b.of(other, pods), 1)
		}
		for d, n := range takes {
			if n > max(b.namespace-o.taken, b.namespace/(o.lists+1)) {
				why[d] = fmt.Sprintf(b.why, namespace, b.namespace)
			}
		}
	}
	return why
}

// fit reports whether nothing can exceed a bound.
func (s *shares) fit() bool {
	for _, b := range s.bounds {
		taken := 0
		for _, of := range s.owners {
			for p, pods := range of {
				takes := b.of(p, pods)
				taken += takes[0] + takes[1]
			}
		}
		if taken > min(b.namespace, b.node) {
			return false
		}
	}
	return true
}

// closed returns the profiles of which a list must be closed: all its namespaces refuse it.
func (s *shares) closed() map[*profile]reasons {
	names, users := map[*profile][]string{}, map[*profile]int{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		for p, pods := range s.owners[name] {
			names[p] = append(names[p], name)
			users[p] += pods
		}
	}
	closed := map[*profile]reasons{}
	for _, b := range s.bounds {
		for p, why := range b.closed(names, users) {
			for d, before := range closed[p] {
				why[d] = cmp.Or(before, why[d])
			}
			closed[p] = why
		}
	}
	return closed
}

// closed returns the profiles with lists beyond a bound, given the namespaces and the number of
// pods of each.
func (b bound) closed(names map[*profile][]string, users map[*profile]int) map[*profile]reasons {
	owners := map[string]*owner{}
	for p, of := range names {
		for _, name := range of {
			if owners[name] == nil {
				owners[name] = &owner{}
			}
			owners[name].add(b.of(p, users[p]), len(of))
		}
	}
	for share := b.namespace; ; share /= 2 {
		closed, left := map[*profile]reasons{}, 0
		for p, of := range names {
			var why reasons
			for d, n := range b.of(p, users[p]) {
				if slices.ContainsFunc(of, func(name string) bool { return n <= owners[name].quota(share) }) {
					left += n
				} else {
					why[d] = fmt.Sprintf(b.why, of[0], share)
				}
			}
			if why != (reasons{}) {
				closed[p] = why
			}
		}
		if left <= b.node || share <= 1 {
			return closed
		}
	}
}
