package configurator

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// UpdateSet changes the members of an address set; see renderer.Txn.
func (t *Txn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if len(added)+len(removed) == 0 || !t.c.updateSize(id, len(added), len(removed)) {
		return
	}
	added, removed = t.again(id, added, removed)
	if len(added)+len(removed) == 0 {
		return
	}
	t.c.interner.derived.moved(id, added)
	t.c.interner.derived.moved(id, removed)
	t.updateSet(id, added, removed)
}

// DropSet reports that no policy refers to a set any more, and its members. Renderers are notified
// once no pod waits for its rules, because those of a waiting pod may still refer to the set.
func (t *Txn) DropSet(id api.SetID, members []netip.Prefix) {
	if t.c.updateSize(id, 0, len(members)) {
		t.c.retained[id] = members
	}
}

// again returns the changes of a dropped set that is back before renderers were notified.
func (t *Txn) again(id api.SetID, added, removed []netip.Prefix) (_, _ []netip.Prefix) {
	held, ok := t.c.retained[id]
	if !ok {
		return added, removed
	}
	delete(t.c.retained, id)
	t.reclaimed = append(t.reclaimed, id)
	return minus(added, held), minus(held, added)
}

// minus returns the prefixes of a that are not in b; both are sorted.
func minus(a, b []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(a), func(p netip.Prefix) bool {
		_, found := slices.BinarySearchFunc(b, p, netip.Prefix.Compare)
		return found
	})
}

// release notifies renderers of the sets to which no list refers any more, until it has removed
// releaseMembers.
func (t *Txn) release() {
	if len(t.c.waiting) > 0 || len(t.c.retained) == 0 {
		return
	}
	left := t.c.releases
	for _, id := range slices.Sorted(maps.Keys(t.c.retained)) {
		left -= len(t.c.retained[id])
		if t.forget(id); left <= 0 {
			return
		}
	}
}

// forget notifies renderers that a dropped set has no members.
func (t *Txn) forget(id api.SetID) {
	t.c.interner.derived.moved(id, t.c.retained[id])
	t.updateSet(id, nil, t.c.retained[id])
	delete(t.c.retained, id)
}

// retainedIn returns the dropped sets to which some policies refer.
func (c *Configurator) retainedIn(changes map[api.PodID]podChange) map[api.SetID]bool {
	out := map[api.SetID]bool{}
	if len(c.retained) == 0 {
		return out
	}
	for _, change := range changes {
		p := profile{policies: change.policies, shared: change.shared}
		for policy := range p.all() {
			for _, r := range slices.Concat(policy.Ingress, policy.Egress) {
				for _, id := range r.Sets {
					if _, held := c.retained[id]; held {
						out[id] = true
					}
				}
			}
		}
	}
	return out
}
