package cache

import (
	"iter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// lists holds the rule lists of all pods. Equal lists are one, since the tables of pods are those of
// their lists.
type lists struct {
	orientation orientation
	owns        map[renderer.Digest]*list
	opposites   map[renderer.Digest]*list
	naming      map[api.SetID]map[*list]struct{} // lists by the sets that they name
	orphans     []*list                          // lists that lost their last pod; a pod may have returned since
	made        uint32                           // lists so far
	most        int                              // rules of NetworkPolicies of one list; 0: any number
}

func newLists(o orientation) lists {
	return lists{
		orientation: o, owns: make(map[renderer.Digest]*list), opposites: make(map[renderer.Digest]*list),
		naming: make(map[api.SetID]map[*list]struct{}),
	}
}

// all iterates over the lists of both directions.
func (x *lists) all() iter.Seq[*list] {
	return func(yield func(*list) bool) {
		for _, of := range [2]map[renderer.Digest]*list{x.owns, x.opposites} {
			for _, l := range of {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// own returns the shared list with these rules, for use as a pod's own list.
func (x *lists) own(rules *renderer.RuleList) *list {
	l := x.owns[rules.Digest()]
	if l == nil {
		l = x.list(rules, x.orientation.ownPeer())
		x.owns[l.digest] = l
		x.name(l)
	}
	return l
}

// opposite returns the shared list with these rules, for use as a pod's opposite list.
func (x *lists) opposite(rules *renderer.RuleList) *list {
	l := x.opposites[rules.Digest()]
	if l == nil {
		l = x.list(rules, x.orientation.oppPeer())
		l.isOpposite, l.podsSet = true, PodsOf(l.digest)
		x.opposites[l.digest] = l
		x.name(l)
	}
	return l
}

// isAsked reports whether a list that names the set has verdicts about addresses.
func (x *lists) isAsked(id api.SetID) bool {
	for l := range x.naming[id] {
		if len(l.verdicts) > 0 {
			return true
		}
	}
	return false
}

// resize forgets the entries of lists that name a set.
func (x *lists) resize(id api.SetID) {
	for l := range x.naming[id] {
		l.sized = false
	}
}

// list returns a new list.
func (x *lists) list(rules *renderer.RuleList, peer side) *list {
	l := newList(rules, peer, x.most)
	x.made++
	l.id = x.made
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

// leave removes a pod from a list.
func (x *lists) leave(l *list, p *pod) {
	if delete(l.pods, p.id); len(l.pods) == 0 {
		x.orphans = append(x.orphans, l)
	}
}

// purge drops lists without pods.
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

// forget drops all verdicts about the address of a slot.
func (x *lists) forget(slot int) {
	for l := range x.all() {
		l.forget(slot)
	}
}
