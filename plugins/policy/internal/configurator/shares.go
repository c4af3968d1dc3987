package configurator

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sluice-net/sluice/api"
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

// ofTenants reports whether a policy counts.
func ofTenants(p *api.ContivPolicy) bool { return p.Tier == api.TierNetworkPolicy }

// shares bounds the lists of namespaces. A namespace that exceeds its share may use an equal part
// of it for each of its lists; larger lists are closed. While all namespaces together exceed the
// node's limit, the share is halved, so the largest namespaces are limited first. Which lists are
// closed depends on the current policies only, not on their history.
type shares struct {
	namespace, node int                         // NamespacePairs and NodePairs
	owners          map[string]map[*profile]int // by namespace: how many of its pods have a profile
}

func newShares() shares {
	return shares{NamespacePairs, NodePairs, map[string]map[*profile]int{}}
}

// count records that n more pods of a namespace use a profile.
func (s *shares) count(namespace string, p *profile, n int) {
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
type owner struct{ pairs, lists int }

// quota returns how many pairs each list may have.
func (o *owner) quota(share int) int {
	if o.pairs <= share {
		return math.MaxInt
	}
	return share / o.lists
}

// add counts the lists of a profile, which some namespaces share.
func (o *owner) add(p *profile, namespaces int) {
	for _, n := range p.pairs {
		if n > 0 {
			o.pairs += n / namespaces
			o.lists++
		}
	}
}

// limit returns how many pairs another list of a namespace may have. A larger list will be closed,
// unless the transaction also removes others.
func (s *shares) limit(namespace string) int {
	o := owner{}
	for p := range s.owners[namespace] {
		o.add(p, 1)
	}
	return max(s.namespace-o.pairs, s.namespace/(o.lists+1))
}

// tooLarge explains why a list is closed.
func tooLarge(namespace string, share int) string {
	return fmt.Sprintf("the policies of namespace %s name more than %d pairs of a peer and a port for its pods together, and for this list more than its part, so everything is denied: name fewer ports for fewer peers", namespace, share)
}

// closed returns the profiles of which a list must be closed: all its namespaces refuse it.
func (s *shares) closed() map[*profile]reasons {
	names := map[*profile][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		for p := range s.owners[name] {
			names[p] = append(names[p], name)
		}
	}
	owners := map[string]*owner{}
	for p, of := range names {
		for _, name := range of {
			if owners[name] == nil {
				owners[name] = &owner{}
			}
			owners[name].add(p, len(of))
		}
	}
	for share := s.namespace; ; share /= 2 {
		closed, left := map[*profile]reasons{}, 0
		for p, of := range names {
			var why reasons
			for d, n := range p.pairs {
				if slices.ContainsFunc(of, func(name string) bool { return n <= owners[name].quota(share) }) {
					left += n
				} else {
					why[d] = tooLarge(of[0], share)
				}
			}
			if why != (reasons{}) {
				closed[p] = why
			}
		}
		if left <= s.node || share <= 1 {
			return closed
		}
	}
}
