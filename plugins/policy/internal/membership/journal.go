package membership

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// journal records changes of the pods of sets, and computes the net changes of members.
type journal struct {
	state   State
	links   *links
	touched []*Set                  // sets whose members may differ from those published
	shared  map[netip.Addr]struct{} // addresses that two pods have, or had since the last update

	spare []uint32   // memory for sorting addresses
	lists []addrList // memory for collecting addresses
}

// Update is the change of one set. Both lists are sorted.
type Update struct {
	ID             api.SetID
	Added, Removed []netip.Prefix
	Dead           bool // the set has no users any more
}

func (j *journal) touch(set *Set) {
	if !set.touched {
		set.touched = true
		j.touched = append(j.touched, set)
	}
}

// record records that d more pods of the set have an address.
func (j *journal) record(set *Set, a netip.Addr, d int) {
	if set.Refused || !set.admits(a) {
		return
	}
	set.journal = append(set.journal, delta{a, d})
	j.touch(set)
}

// count records that a pod joins or leaves the sets of its group; nil is ignored.
func (j *journal) count(pod *intent.Pod, d int) {
	if pod == nil {
		return
	}
	for _, s := range j.links.groups[pod.Group].sets {
		for _, a := range pod.IPs {
			j.record(s, a, d)
		}
	}
}

// settle computes which addresses joined and left the set since the last update.
//
// The journal counts pods. For an address that no two pods shared, neither at the last update nor
// since, the count shows whether it is a member before and after. For the others, which are few,
// settle counts the pods that have them now; the journal then yields the previous count.
func (j *journal) settle(set *Set) {
	if len(set.journal) == 0 {
		return
	}
	slices.SortFunc(set.journal, func(a, b delta) int { return a.addr.Compare(b.addr) })
	// changes are written behind the position where the journal is read
	changes, added := set.journal[:0], 0
	for i := 0; i < len(set.journal); {
		a, d := set.journal[i].addr, 0
		for ; i < len(set.journal) && set.journal[i].addr == a; i++ {
			d += set.journal[i].d
		}
		before, after := max(0, -d), max(0, d)
		if _, ok := j.shared[a]; ok {
			after = j.holders(set, a)
			before = after - d
		}
		switch {
		case before == 0 && after > 0:
			changes = append(changes, delta{a, +1})
			added++
		case before > 0 && after == 0:
			changes = append(changes, delta{a, -1})
		}
	}
	set.added, set.removed = splitChanges(changes, added)
	set.journal = set.journal[:0]
}

// splitChanges returns the added and the removed addresses as prefixes.
func splitChanges(changes []delta, nAdded int) (added, removed []netip.Prefix) {
	if nAdded > 0 {
		added = make([]netip.Prefix, 0, nAdded)
	}
	if n := len(changes) - nAdded; n > 0 {
		removed = make([]netip.Prefix, 0, n)
	}
	for _, c := range changes {
		p := netip.PrefixFrom(c.addr, c.addr.BitLen())
		if c.d > 0 {
			added = append(added, p)
		} else {
			removed = append(removed, p)
		}
	}
	return added, removed
}

// holders counts the pods of a set that have an address.
func (j *journal) holders(set *Set, a netip.Addr) (n int) {
	for _, id := range j.state.Holders(a) {
		if j.links.has(set, id) {
			n++
		}
	}
	return n
}

// noteShared records the addresses of a pod that shares some with another one.
func (j *journal) noteShared(pod *intent.Pod) {
	for _, a := range pod.IPs {
		j.shared[a] = struct{}{}
	}
}

// forgetUnshared removes the addresses that only one pod has now. The others may still be counted
// twice in some set.
func (j *journal) forgetUnshared() {
	maps.DeleteFunc(j.shared, func(a netip.Addr, _ struct{}) bool { return len(j.state.Holders(a)) < 2 })
}

// take returns the change of a set since its last update.
func (j *journal) take(set *Set) Update {
	u := Update{ID: set.ID}
	if set.nodes != nil {
		set.touched = false
		u.Added, u.Removed = set.nodes.take()
		return u
	}
	j.settle(set)
	switch {
	case set.fresh && set.dead:
	case set.fresh:
		u.Added = j.takeMembers(set)
	case set.dead:
		for _, x := range set.removed {
			set.members.add(x.Addr())
		}
		u.Removed = slices.DeleteFunc(j.takeMembers(set), func(x netip.Prefix) bool {
			_, isNew := slices.BinarySearchFunc(set.added, x, netip.Prefix.Compare)
			return isNew
		})
	default:
		u.Added, u.Removed = set.added, set.removed
	}
	set.added, set.removed = nil, nil
	set.touched, set.fresh = false, false
	return u
}

// takeMembers returns the collected members. It reuses the memory in which they were collected.
func (j *journal) takeMembers(set *Set) (out []netip.Prefix) {
	out, j.spare = set.members.take(j.spare)
	if len(j.lists) < keptLists {
		j.lists = append(j.lists, set.members)
	}
	set.members = addrList{}
	return out
}

// keptLists is how many lists are kept for collecting members.
const keptLists = 4

// newMembers returns an empty list to collect members in.
func (j *journal) newMembers() (l addrList) {
	if n := len(j.lists); n > 0 {
		l, j.lists = j.lists[n-1], j.lists[:n-1]
	}
	return l
}
