package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// lists are the rule lists that pods have, one of equal ones.
type lists struct {
	orientation orientation
	owns        map[renderer.Digest]*list
	opposites   map[renderer.Digest]*list
	naming      map[api.SetID]map[*list]struct{} // by the sets that they name
	orphans     []*list                          // that lost their last pod; it may have come back
}

func newLists(o orientation) lists {
	return lists{
		orientation: o, owns: make(map[renderer.Digest]*list), opposites: make(map[renderer.Digest]*list),
		naming: make(map[api.SetID]map[*list]struct{}),
	}
}

// own returns the list with the same rules, as a pod's own list.
func (x *lists) own(rules *renderer.RuleList) *list {
	l := x.owns[rules.Digest()]
	if l == nil {
		l = newList(rules, x.orientation.ownPeer())
		x.owns[l.digest] = l
		x.name(l)
	}
	return l
}

// opposite returns the list with the same rules, as the opposite list of a pod.
func (x *lists) opposite(rules *renderer.RuleList) *list {
	l := x.opposites[rules.Digest()]
	if l == nil {
		l = newList(rules, x.orientation.oppPeer())
		l.isOpposite, l.podsSet = true, PodsOf(l.digest)
		x.opposites[l.digest] = l
		x.name(l)
	}
	return l
}

func (x *lists) name(l *list) {
	for id := range l.bySet {
		if x.naming[id] == nil {
			x.naming[id] = make(map[*list]struct{})
		}
		x.naming[id][l] = struct{}{}
	}
}

// leave takes a pod from a list.
func (x *lists) leave(l *list, p *pod) {
	if delete(l.pods, p.id); len(l.pods) == 0 {
		x.orphans = append(x.orphans, l)
	}
}

// purge forgets lists that no pod has any more.
func (x *lists) purge() {
	for _, l := range x.orphans {
		if len(l.pods) > 0 {
			continue
		}
		if l.isOpposite {
			delete(x.opposites, l.digest)
		} else {
			delete(x.owns, l.digest)
		}
		for id := range l.bySet {
			if delete(x.naming[id], l); len(x.naming[id]) == 0 {
				delete(x.naming, id)
			}
		}
	}
	x.orphans = nil
}

// forget drops what lists say about the address of a slot.
func (x *lists) forget(slot int) {
	for _, lists := range []map[renderer.Digest]*list{x.owns, x.opposites} {
		for _, l := range lists {
			l.forget(slot)
		}
	}
}

// Named reports whether staged rules that name a set permit, and whether any denies. A set that no
// rule names does neither.
func (c *Cache) Named(id api.SetID) (permits, denies bool) {
	for l := range c.lists.naming[id] {
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
