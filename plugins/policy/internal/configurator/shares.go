package configurator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/internal/shares"
)

// NamespacePairs is the maximum number of pairs of a peer and a port in the NetworkPolicy rules of
// all lists of a namespace's pods. NodePairs is that of the lists of all pods. A list has at most
// that many rules of NetworkPolicies, at up to 120 bytes each; pods with equal policies share their
// lists. Pairs are counted in policies, before a list is generated. Rules of admin policies do not
// count: their authors are responsible for the node.
const (
	NamespacePairs = 1 << 20
	NodePairs      = 2 * NamespacePairs
)

// tenants are the namespaces whose pods have lists. One whose lists together name more pairs than
// its share may use an equal part of it for each of them; larger lists are closed. While all
// namespaces together exceed the node's limit, the share is halved, so the largest namespaces are
// limited first. Which lists are closed depends on the current policies only, not on their history.
type tenants struct {
	share, node int                         // pairs
	owners      map[string]map[*profile]int // by namespace: how many of its pods have a profile
	taken       int                         // pairs of all lists of all namespaces
	closing     bool                        // a list was closed: it may fit again
	changed     bool                        // what lists take, since applyShares looked
}

const whyPairs = "the policies of namespace %s name more than %d pairs of a peer and a port for its pods together, and for this list more than its part, so everything is denied: name fewer ports for fewer peers"

func newTenants() tenants {
	return tenants{share: NamespacePairs, node: NodePairs, owners: map[string]map[*profile]int{}}
}

// count records that n more pods of a namespace use a profile.
func (s *tenants) count(namespace string, p *profile, n int) {
	s.changed = true
	of := s.owners[namespace]
	if of == nil {
		of = map[*profile]int{}
		s.owners[namespace] = of
	}
	if of[p] == 0 {
		s.taken += p.pairs[0] + p.pairs[1]
	}
	if of[p] += n; of[p] == 0 {
		s.taken -= p.pairs[0] + p.pairs[1]
		delete(of, p)
	}
	if len(of) == 0 {
		delete(s.owners, namespace)
	}
}

// tooLarge returns, for each direction, why another profile of a namespace cannot have its list: it
// will be closed, unless the transaction also removes others.
func (s *tenants) tooLarge(namespace string, p *profile) (why reasons) {
	if max(p.pairs[0], p.pairs[1]) <= s.share/max(2*len(s.owners[namespace])+2, 1) {
		return why // the usual case
	}
	taken, lists := 0, 0
	for other := range s.owners[namespace] {
		for _, n := range other.pairs {
			if taken += n; n > 0 {
				lists++
			}
		}
	}
	for d, n := range p.pairs {
		if n > max(s.share-taken, s.share/(lists+1)) {
			why[d] = fmt.Sprintf(whyPairs, namespace, s.share)
		}
	}
	return why
}

// fit reports whether nothing can exceed a limit.
func (s *tenants) fit() bool { return s.taken <= min(s.share, s.node) }

// side is a direction of a profile.
type side struct {
	*profile
	direction int
}

// closed returns the profiles of which a list must be closed: all its namespaces refuse it.
func (s *tenants) closed() map[*profile]reasons {
	takes, owners := map[side]int{}, map[side][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		for p := range s.owners[name] {
			for d, n := range p.pairs {
				x := side{p, d}
				takes[x], owners[x] = n, append(owners[x], name)
			}
		}
	}
	closed := map[*profile]reasons{}
	for x, share := range shares.Exceeded(s.share, s.node, takes, owners) {
		why := closed[x.profile]
		why[x.direction] = fmt.Sprintf(whyPairs, owners[x][0], share)
		closed[x.profile] = why
	}
	return closed
}
