package membership

import (
	"maps"
	"net/netip"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// journal records changes of the pods of sets, and computes the net changes of members.
type journal struct {
	state   State
	links   *links
	touched []*Set                  // sets whose members may differ from those published
	shared  map[netip.Addr]struct{} // addresses that two pods have, or had since the last update

	spare []uint64 // memory for sorting addresses
}

// Update is the change of one set. Both lists are sorted.
type Update struct {
	ID             api.SetID
	Added, Removed []netip.Prefix
}

func (j *journal) touch(set *Set) {
	if !set.touched {
		set.touched = true
		j.touched = append(j.touched, set)
	}
}

// record records that d more pods of the set have some addresses.
func (j *journal) record(set *Set, addrs []netip.Addr, d int) {
	if set.Refused || len(addrs) == 0 {
		return
	}
	set.sel.grow(d * len(addrs))
	for _, a := range addrs {
		if set.admits(a) {
			set.journal.add(a, d)
		}
	}
	j.touch(set)
}

// count records that a pod joins or leaves the sets of its group; nil is ignored.
func (j *journal) count(pod *intent.Pod, d int) {
	if pod == nil {
		return
	}
	for _, s := range j.links.groups[pod.Group].sets {
		j.record(s, pod.IPs, d)
	}
}

// holders counts the pods of a set that have an address.
func (j *journal) holders(set *Set, a netip.Addr) (n int) {
	for _, id := range j.state.Holders(a) {
		if j.links.contains(set, id) {
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

// takeUpdate returns the change of a set since its last update.
//
// The journal counts pods. For an address that no two pods shared, neither at the last update nor
// since, the count shows whether it is a member before and after. For the others, which are few,
// take counts the pods of linked groups that have them now; the journal then yields the previous
// count.
func (j *journal) takeUpdate(set *Set) Update {
	u := Update{ID: set.ID}
	set.touched = false
	if set.nodes != nil {
		u.Added, u.Removed = set.nodes.takeChanges()
		return u
	}
	join, leave := set.journal.size()
	if join > 0 {
		u.Added = make([]netip.Prefix, 0, join)
	}
	if leave > 0 {
		u.Removed = make([]netip.Prefix, 0, leave)
	}
	j.spare = set.journal.drain(j.spare, func(a netip.Addr, d int) {
		before, after := max(0, -d), max(0, d)
		if _, ok := j.shared[a]; ok {
			after = j.holders(set, a)
			before = after - d
		}
		switch p := netip.PrefixFrom(a, a.BitLen()); {
		case before > 0 && after == 0:
			u.Removed = append(u.Removed, p)
		case before == 0 && after > 0:
			u.Added = append(u.Added, p)
		}
	})
	return u
}
