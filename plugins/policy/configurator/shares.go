package configurator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// NamespaceRules is how many rules the lists of a namespace's pods may have together, and NodeRules
// those of all. A rule takes 120 bytes. Pods with equal policies share their lists.
const (
	NamespaceRules = maxRules
	NodeRules      = 2 * NamespaceRules
)

// shares bounds the rules of lists. A namespace that has more than its share may have an equal part
// of it with each of its lists; those that have more are closed. While all namespaces together have
// too many, the share is halved, so that the largest are the first. What is closed depends on what is
// wanted, and not on what was before.
type shares struct {
	namespace, node int                         // NamespaceRules and NodeRules
	owners          map[string]map[*profile]int // by namespace: how many of its pods have a profile
}

func newShares() shares {
	return shares{namespace: NamespaceRules, node: NodeRules, owners: map[string]map[*profile]int{}}
}

// count notes that pods of a namespace use a profile, or n less.
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

// owner is what a namespace has.
type owner struct {
	name         string
	rules, lists int
}

// quota is how many rules each list may have of an owner that has too many, any number of another.
func (o owner) quota(share int) int {
	if o.rules <= share {
		return maxRules + 1 // no list has more
	}
	return share / o.lists
}

// room limits a further list of a namespace: with more rules it is closed for sure.
func (s *shares) room(namespace string) limit {
	o := owner{name: namespace}
	for p := range s.owners[namespace] {
		o.add(p, 1)
	}
	return limit{max(s.namespace-o.rules, s.namespace/(o.lists+1)), tooLarge(namespace, s.namespace)}
}

func (o *owner) add(p *profile, owners int) {
	for _, n := range p.sizes {
		if n > 0 {
			o.rules += n / owners
			o.lists++
		}
	}
}

// tooLarge is why a list is closed.
func tooLarge(namespace string, share int) string {
	return fmt.Sprintf("the lists of namespace %s have more than the %d rules that they may have together, and this one has more than its part, so everything is denied: name fewer ports for fewer peers", namespace, share)
}

// reasons is why each direction of a profile is closed, empty where it is not.
type reasons [2]string

// judge returns the profiles of which something is to be closed.
func (s *shares) judge() map[*profile]reasons {
	owned := map[*profile][]*owner{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		o := &owner{name: name}
		for p := range s.owners[name] {
			owned[p] = append(owned[p], o)
		}
	}
	for p, of := range owned {
		for _, o := range of {
			o.add(p, len(of))
		}
	}
	for share := s.namespace; ; share /= 2 {
		closed, left := map[*profile]reasons{}, 0
		for p, of := range owned {
			why, rules := p.judge(of, share)
			if left += rules; why != (reasons{}) {
				closed[p] = why
			}
		}
		if left <= s.node || share <= 1 {
			return closed
		}
	}
}

// judge returns why lists of a profile are closed, those that all of its owners refuse, and how many
// rules the others have.
func (p *profile) judge(owners []*owner, share int) (why reasons, rules int) {
	for d, n := range p.sizes {
		if slices.ContainsFunc(owners, func(o *owner) bool { return n <= o.quota(share) }) {
			rules += n
			continue
		}
		why[d] = tooLarge(owners[0].name, share)
	}
	return why, rules
}

// settleShares closes lists that are too large, and makes others again that need not be closed any
// more. Renderers are told of their pods.
func (t *Txn) settleShares() {
	c := t.c
	// Profiles that nobody uses any more count yet, so that this is not passed by while something is
	// closed that need not be.
	if c.interner.size <= min(c.shares.namespace, c.shares.node) {
		return
	}
	closed := c.shares.judge()
	changed := map[*profile]bool{}
	for _, of := range c.shares.owners {
		for p := range of {
			for _, d := range []api.Direction{api.Ingress, api.Egress} {
				if p.why[d] != closed[p][d] {
					changed[p] = true
					c.interner.remake(p, d, closed[p][d], c.taken)
				}
			}
		}
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

// remake makes a list of a profile again, or closes it for a reason.
func (in *interner) remake(p *profile, d api.Direction, why string, taken func(api.SetID) bool) {
	old, l := p.lists[d], limit{most: maxRules}
	if why != "" {
		l = limit{-1, why}
	}
	in.fill(p, d, l, taken)
	in.releaseList(old)
}

// fill makes a list of a profile.
func (in *interner) fill(p *profile, d api.Direction, l limit, taken func(api.SetID) bool) {
	in.size -= p.sizes[d]
	p.sizes[d], p.why[d] = 0, ""
	g := generateWithin(l, d, p.policies, in.allowNode, p.shared...)
	if g != nil {
		p.sizes[d] = g.size
	}
	if g != nil && g.large {
		p.why[d] = l.why
	}
	in.size += p.sizes[d]
	p.lists[d] = in.acquireList(g, taken)
}
