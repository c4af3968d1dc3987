package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// intern returns the list with the same rules.
func (c *Cache) intern(lists map[renderer.Digest]*list, rules *renderer.RuleList, peer side) *list {
	if l := lists[rules.Digest()]; l != nil {
		return l
	}
	l := newList(rules, peer)
	l.isOpposite = peer == c.oppPeer
	lists[l.digest] = l
	if l.isOpposite {
		l.podsSet = podsOf(l.digest)
	}
	for id := range l.bySet {
		if c.naming[id] == nil {
			c.naming[id] = make(map[*list]struct{})
		}
		c.naming[id][l] = struct{}{}
	}
	return l
}

// leave takes a pod from a list.
func (c *Cache) leave(l *list, p *pod) {
	if delete(l.pods, p.id); len(l.pods) == 0 {
		c.orphans = append(c.orphans, l)
	}
}

// purge forgets lists that no pod has any more.
func (c *Cache) purge() {
	for _, l := range c.orphans {
		if len(l.pods) > 0 {
			continue
		}
		if l.isOpposite {
			delete(c.opp, l.digest)
		} else {
			delete(c.own, l.digest)
		}
		for id := range l.bySet {
			if delete(c.naming[id], l); len(c.naming[id]) == 0 {
				delete(c.naming, id)
			}
		}
	}
	c.orphans = nil
}

// Named reports whether staged rules that name a set permit, and whether any denies. A set that no
// rule names does neither.
func (c *Cache) Named(id api.SetID) (permits, denies bool) {
	for l := range c.naming[id] {
		for _, i := range l.bySet[id] {
			if l.rules[i].Action == api.Permit {
				permits = true
			} else {
				denies = true
			}
		}
	}
	return permits, denies
}
