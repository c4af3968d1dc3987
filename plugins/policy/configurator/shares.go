package configurator

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// NamespaceRules is how many rules the lists of a namespace's pods may have together, and NodeRules
// those of all. A rule takes 120 bytes. Pods with equal policies share their lists. Rules of
// administrators, who answer for the node, do not count.
const (
	NamespaceRules = 1 << 20
	NodeRules      = 2 * NamespaceRules
)

// NamespacePairs is how many pairs of a peer and a port the rules of NetworkPolicies may name for the
// lists of a namespace's pods, and NodePairs for those of all: it takes about a microsecond to make
// a list of one. Equal rules of several policies count each.
const (
	NamespacePairs = 2 * NamespaceRules
	NodePairs      = 2 * NamespacePairs
)

// ofTenants are the policies that count.
func ofTenants(p *api.ContivPolicy) bool { return p.Tier == api.TierNetworkPolicy }

// share bounds the lists of a namespace, and of a node, by one measure. A namespace that has more
// than its share may have an equal part of it with each of its lists; those that have more are
// closed. While all namespaces together have too much, the share is halved, so that the largest are
// the first. What is closed depends on what is wanted, and not on what was before.
type share struct {
	namespace, node int
	of              func(*profile) [2]int // by direction, 0 where there is no list
	why             string                // with the namespace and its share
}

// shares are those of all namespaces.
type shares struct {
	pairs, rules share
	owners       map[string]map[*profile]int // by namespace: how many of its pods have a profile
}

func newShares() shares {
	return shares{
		pairs: share{NamespacePairs, NodePairs, func(p *profile) [2]int { return p.pairs },
			"the policies of namespace %s name more than %d pairs of a peer and a port for its pods together, and for this list more than its part, so everything is denied: name fewer ports for fewer peers"},
		rules: share{NamespaceRules, NodeRules, func(p *profile) [2]int { return p.sizes },
			"the lists of namespace %s have more than the %d rules that they may have together, and this one has more than its part, so everything is denied: name fewer ports for fewer peers"},
		owners: map[string]map[*profile]int{},
	}
}

// count notes that n more pods of a namespace use a profile.
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

// owner is what a namespace has by one measure.
type owner struct {
	name       string
	sum, lists int
}

// quota is how much each list may have of an owner that has too much, anything of another.
func (o owner) quota(share int) int {
	if o.sum <= share {
		return math.MaxInt
	}
	return share / o.lists
}

// add counts the lists of a profile that some owners share.
func (o *owner) add(amounts [2]int, owners int) {
	for _, n := range amounts {
		if n > 0 {
			o.sum += n / owners
			o.lists++
		}
	}
}

// room limits a further list of a namespace: with more it is closed for sure.
func (s *shares) room(x share, namespace string) limit {
	o := owner{}
	for p := range s.owners[namespace] {
		o.add(x.of(p), 1)
	}
	return limit{max(x.namespace-o.sum, x.namespace/(o.lists+1)), fmt.Sprintf(x.why, namespace, x.namespace)}
}

// limits are those of a further list of a namespace.
func (s *shares) limits(namespace string) limits {
	return limits{pairs: s.room(s.pairs, namespace), rules: s.room(s.rules, namespace)}
}

// verdict is why a list is closed, empty where it is not. One that is closed by its pairs is not made,
// so that its size is not known.
type verdict struct {
	why    string
	unmade bool
}

// verdicts are those of the directions of a profile.
type verdicts [2]verdict

// judge returns the profiles of which something is to be closed.
func (s *shares) judge() map[*profile]verdicts {
	owned := map[*profile][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		for p := range s.owners[name] {
			owned[p] = append(owned[p], name)
		}
	}
	closed := map[*profile]verdicts{}
	s.pairs.judge(owned, closed, true)
	s.rules.judge(owned, closed, false)
	return closed
}

// judge adds what is to be closed by a measure, of which nothing counts that is closed already.
func (x share) judge(owned map[*profile][]string, closed map[*profile]verdicts, unmade bool) {
	amounts := make(map[*profile][2]int, len(owned))
	owners := map[string]*owner{}
	for p, names := range owned {
		of := x.of(p)
		for d, v := range closed[p] {
			if v.why != "" {
				of[d] = 0
			}
		}
		amounts[p] = of
		for _, name := range names {
			if owners[name] == nil {
				owners[name] = &owner{name: name}
			}
			owners[name].add(of, len(names))
		}
	}
	for most := x.namespace; ; most /= 2 {
		now, left := map[*profile]verdicts{}, 0
		for p, names := range owned {
			v := closed[p]
			for d, n := range amounts[p] {
				if slices.ContainsFunc(names, func(name string) bool { return n <= owners[name].quota(most) }) {
					left += n
				} else {
					v[d] = verdict{fmt.Sprintf(x.why, names[0], most), unmade}
				}
			}
			if v != (verdicts{}) {
				now[p] = v
			}
		}
		if left <= x.node || most <= 1 {
			maps.Copy(closed, now)
			return
		}
	}
}

// settleShares closes lists that are too large, and makes others again that need not be closed any
// more. Renderers are told of their pods.
func (t *Txn) settleShares() {
	c := t.c
	// Profiles that nobody uses any more count yet, so that this is not passed by while something is
	// closed that need not be.
	if c.interner.size <= min(c.shares.rules.namespace, c.shares.rules.node) && c.interner.pairs <= min(c.shares.pairs.namespace, c.shares.pairs.node) {
		return
	}
	changed := map[*profile]bool{}
	for range 2 { // of what was not made before, the size is known the second time
		c.closeLists(changed)
	}
	if len(changed) == 0 {
		return
	}
	for _, pod := range slices.SortedFunc(maps.Keys(c.pods), api.PodID.Compare) {
		if old := c.pods[pod]; changed[old.profile] {
			now := *old
			now.config = now.profile.configFor(now.ips)
			t.apply(pod, &now)
		}
	}
}

// closeLists has lists be what they are to be, and adds profiles that have others to changed.
func (c *Configurator) closeLists(changed map[*profile]bool) {
	closed := c.shares.judge()
	for _, of := range c.shares.owners {
		for p := range of {
			for _, d := range []api.Direction{api.Ingress, api.Egress} {
				if v := closed[p][d]; p.why[d] != v.why {
					changed[p] = true
					c.interner.remake(p, d, v, c.taken)
				}
			}
		}
	}
}

// remake makes a list of a profile again, or closes it.
func (in *interner) remake(p *profile, d api.Direction, v verdict, taken func(api.SetID) bool) {
	old, l := p.lists[d], unlimited
	switch {
	case v.unmade:
		l.pairs = limit{-1, v.why}
	case v.why != "":
		l.rules = limit{-1, v.why}
	}
	in.fill(p, d, l, taken)
	in.releaseList(old)
}

// of returns the limit of a list that is made of so many pairs of tenants: other rules do not count.
func (l limit) of(pairs int) limit {
	if l.most >= pairs {
		return unlimited.rules
	}
	return l
}

// fill makes a list of a profile.
func (in *interner) fill(p *profile, d api.Direction, l limits, taken func(api.SetID) bool) {
	in.size -= p.sizes[d]
	p.sizes[d], p.why[d] = 0, ""
	var g *generated
	if p.pairs[d] > l.pairs.most {
		g, p.why[d] = closedBy(l.pairs.why, d, p.policies, in.allowNode, p.shared...), l.pairs.why
	} else if g = generateWithin(l.rules.of(p.pairs[d]), d, p.policies, in.allowNode, p.shared...); g != nil {
		p.sizes[d] = min(g.size, p.pairs[d])
		if g.large {
			p.why[d] = l.rules.why
		}
	}
	in.size += p.sizes[d]
	p.lists[d] = in.acquireList(g, taken)
}
