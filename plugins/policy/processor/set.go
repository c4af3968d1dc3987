package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// addrSet is one address set: the addresses of the pods of the groups that are
// linked to it, as far as they are within the block of its selector.
type addrSet struct {
	id      api.SetID
	sel     *selector
	number  uint16 // of the named port; 0: a plain selector
	groups  int    // that are linked
	refused bool   // another set has its ID: it matches nothing
	size    int    // members that the sink knows of; of sets within a block only
	touched bool   // is in Processor.touched
	fresh   bool   // the sink does not know it yet
	dead    bool   // the sink has to forget it

	nodes *countedSet // of a selector of nodes, which needs nothing of what follows

	journal        []delta        // since the last Flush
	members        addrList       // of a fresh set all, of a dead one those it had in the end
	added, removed []netip.Prefix // what the journal comes to, sorted
}

// delta says that d more pods of a set have an address.
type delta struct {
	addr netip.Addr
	d    int
}

// makeSet makes a set and its ID. When another set has the ID, this one matches
// nothing.
func (p *Processor) makeSet(s *selector, number uint16) *addrSet {
	set := &addrSet{id: p.newID(s.canonical(number)), sel: s, number: number}
	if _, taken := p.sets[set.id]; taken || set.id == api.NodeSet {
		set.refused = true
		return set
	}
	p.sets[set.id] = set
	return set
}

// forget gives the set's ID back.
func (p *Processor) forget(set *addrSet) {
	if !set.refused {
		delete(p.sets, set.id)
	}
}

func (p *Processor) touch(set *addrSet) {
	if !set.touched {
		set.touched = true
		p.touched = append(p.touched, set)
	}
}

// enter links a group to a set, without its addresses.
func (p *Processor) enter(set *addrSet, id api.GroupID) {
	p.groups[id].sets = append(p.groups[id].sets, set)
	if set.groups++; set.groups == 1 && set.sel.key.probe {
		p.doubtUsers(set.sel)
	}
}

// exit removes the link of a group to a set, if there is one.
func (p *Processor) exit(set *addrSet, id api.GroupID) bool {
	g := &p.groups[id]
	i := slices.Index(g.sets, set)
	if i < 0 {
		return false
	}
	last := len(g.sets) - 1
	g.sets[i] = g.sets[last]
	g.sets[last] = nil
	g.sets = g.sets[:last]
	p.leave(set)
	return true
}

// leave counts a group less.
func (p *Processor) leave(set *addrSet) {
	set.groups--
	switch {
	case set.groups > 0:
	case set.sel.key.probe:
		p.doubtUsers(set.sel)
	default:
		p.moved(set.sel)
	}
}

// record notes that d more pods of the set have an address.
func (p *Processor) record(set *addrSet, a netip.Addr, d int) {
	if set.refused || !set.admits(a) {
		return
	}
	set.journal = append(set.journal, delta{a, d})
	p.touch(set)
}

// admits says whether an address of a group's pod is one of the set.
func (s *addrSet) admits(a netip.Addr) bool { return s.sel.block == nil || s.sel.block.Contains(a) }

// collect notes addresses as members.
func (s *addrSet) collect(addrs []netip.Addr) {
	if s.refused {
		return
	}
	for _, a := range addrs {
		if s.admits(a) {
			s.members.add(a)
		}
	}
}

// settle works out which addresses joined and left the set since the last Flush.
//
// The journal counts pods. An address that no two pods had, neither at the last
// Flush nor since, is a member before or after when the count says so. For the
// others, which are few, the pods that have it now are counted: what they were
// before follows from the journal.
func (p *Processor) settle(set *addrSet) {
	if len(set.journal) == 0 {
		return
	}
	slices.SortFunc(set.journal, func(a, b delta) int { return a.addr.Compare(b.addr) })
	changes, added := set.journal[:0], 0 // the journal is read faster than it is written
	for i := 0; i < len(set.journal); {
		a, d := set.journal[i].addr, 0
		for ; i < len(set.journal) && set.journal[i].addr == a; i++ {
			d += set.journal[i].d
		}
		before, after := max(0, -d), max(0, d)
		if _, ok := p.contested[a]; ok {
			after = p.holders(set, a)
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

// splitChanges returns what was added and what was removed as prefixes of one
// address.
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
func (p *Processor) holders(set *addrSet, a netip.Addr) (n int) {
	for _, id := range p.state.Holders(a) {
		if slices.Contains(p.groups[id].sets, set) {
			n++
		}
	}
	return n
}

// update is what the sink is told of one set.
type update struct {
	id             api.SetID
	added, removed []netip.Prefix
	dead           bool // no policy names it any more
}

// takeUpdate returns what became different in a set since the last Flush.
func (p *Processor) takeUpdate(set *addrSet) update {
	u := update{id: set.id, dead: set.dead}
	if set.nodes != nil {
		set.touched = false
		u.added, u.removed = set.nodes.take()
		return u
	}
	p.settle(set)
	switch {
	case set.fresh && set.dead:
	case set.fresh:
		u.added = p.takeMembers(set)
	case set.dead:
		for _, x := range set.removed {
			set.members.add(x.Addr())
		}
		u.removed = slices.DeleteFunc(p.takeMembers(set), func(x netip.Prefix) bool {
			_, isNew := slices.BinarySearchFunc(set.added, x, netip.Prefix.Compare)
			return isNew
		})
	default:
		u.added, u.removed = set.added, set.removed
	}
	set.added, set.removed = nil, nil
	set.touched, set.fresh = false, false
	return u
}

// takeMembers returns the members that were collected. The memory they were
// collected in is used again for other sets.
func (p *Processor) takeMembers(set *addrSet) (out []netip.Prefix) {
	out, p.spare = set.members.take(p.spare)
	if len(p.spareLists) < keptLists {
		p.spareLists = append(p.spareLists, set.members)
	}
	set.members = addrList{}
	return out
}

// keptLists is the number of lists that are kept for collecting members.
const keptLists = 4

// newMembers returns an empty list to collect members in.
func (p *Processor) newMembers() (l addrList) {
	if n := len(p.spareLists); n > 0 {
		l, p.spareLists = p.spareLists[n-1], p.spareLists[:n-1]
	}
	return l
}
