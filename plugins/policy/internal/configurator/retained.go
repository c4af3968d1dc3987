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

// DropSet reports that no policy refers to a set any more, and some of its members. Renderers are
// notified once no pod waits for its rules, because those of a waiting pod may still refer to the
// set.
func (t *Txn) DropSet(id api.SetID, members []netip.Prefix) {
	if len(members) > 0 && t.c.updateSize(id, 0, len(members)) {
		t.c.retained[id] = append(t.c.retained[id], members)
	}
}

// again returns the changes of a dropped set that is back before renderers were notified.
func (t *Txn) again(id api.SetID, added, removed []netip.Prefix) (_, _ []netip.Prefix) {
	parts, ok := t.c.retained[id]
	if !ok {
		return added, removed
	}
	held := slices.Concat(parts...)
	slices.SortFunc(held, netip.Prefix.Compare)
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

// release notifies renderers of members of the sets to which no list refers any more, until it has
// removed releaseMembers.
func (t *Txn) release() {
	if len(t.c.waiting) > 0 || len(t.c.retained) == 0 {
		return
	}
	left := t.c.releases
	for _, id := range slices.Sorted(maps.Keys(t.c.retained)) {
		parts := t.c.retained[id]
		n := min(len(parts[0]), left)
		t.lose(id, parts[0][:n])
		if parts[0] = parts[0][n:]; len(parts[0]) == 0 {
			parts = parts[1:]
		}
		if t.c.retained[id] = parts; len(parts) == 0 {
			delete(t.c.retained, id)
		}
		if left -= n; left == 0 {
			return
		}
	}
}

// forget notifies renderers of all members that a dropped set has lost.
func (t *Txn) forget(id api.SetID) {
	for _, part := range t.c.retained[id] {
		t.lose(id, part)
	}
	delete(t.c.retained, id)
}

// lose notifies renderers that a dropped set has lost members.
func (t *Txn) lose(id api.SetID, members []netip.Prefix) {
	t.c.interner.derived.moved(id, members)
	t.updateSet(id, nil, members)
}

// retainedIn returns the dropped sets to which some policies refer.
func (c *Configurator) retainedIn(changes map[api.PodID]podChange) map[api.SetID]bool {
	if len(c.retained) == 0 {
		return nil
	}
	out := map[api.SetID]bool{}
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
