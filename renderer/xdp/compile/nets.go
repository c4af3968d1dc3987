package compile

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// nets numbers the nets that lists name, and keeps the prefixes of those in the tries that a list
// wants there.
type nets struct {
	classes   *classes
	addresses *addresses
	ids       map[api.Net]atom
	net       []api.Net // by atom
	users     []int     // number of lists, by atom
	wanted    []int     // number of lists that want it in the tries, by atom
	written   []bool    // by atom: it is in the tries
	free      []atom
	freed     []atom     // unused, but still in classes
	changed   []atom     // atoms of which users or wanted changed since the last settle
	named     [][]naming // by atom: the lists whose rules name it
	members   map[api.SetID]map[netip.Prefix]struct{}
	given     bool                 // the caller of Update maintains members
	total     int                  // number of prefixes of all nets
	resized   bool                 // there are other lists, or nets of another size, since Plan looked
	pending   []pending            // changes of the tries
	at        map[netip.Prefix]int // index of a prefix in pending
}

// naming has the rules of a list that name an atom.
type naming struct {
	by    *difference // of that list
	rules []int
}

// difference is what a class has more than its nearest used ancestor, as far as it concerns a list:
// the input for the list's row of the class.
type difference struct {
	active bool // the differences of the list are wanted now
	there  bool
	sum    sum
	rules  []int
}

// clear resets the difference for the next class.
func (d *difference) clear() {
	d.there, d.sum, d.rules = false, sum{}, d.rules[:0]
}

// pending is the change of the atoms of a prefix. Mostly one atom changes.
type pending struct {
	prefix netip.Prefix
	first  joined
	more   []joined
}

func newNets(c *classes, a *addresses, members map[api.SetID]map[netip.Prefix]struct{}) *nets {
	n := &nets{classes: c, addresses: a, ids: map[api.Net]atom{}, members: members, given: members != nil, at: map[netip.Prefix]int{}}
	if !n.given {
		n.members = map[api.SetID]map[netip.Prefix]struct{}{}
	}
	n.add(api.Net{})
	n.users[infraAtom] = 1
	return n
}

// add makes room for an atom.
func (n *nets) add(net api.Net) atom {
	n.net, n.users, n.wanted, n.written, n.named = append(n.net, net), append(n.users, 0), append(n.wanted, 0), append(n.written, false), append(n.named, nil)
	return atom(len(n.net) - 1)
}

// name returns the atom of a net, and adds a list whose rules name it.
func (n *nets) name(net api.Net, by naming) atom {
	a, known := n.ids[net]
	if !known {
		if last := len(n.free) - 1; last >= 0 {
			a, n.free = n.free[last], n.free[:last]
			n.net[a] = net
		} else {
			a = n.add(net)
		}
		n.classes.owns.name(a)
		n.ids[net] = a
		n.total += n.size(a)
	}
	n.users[a]++
	n.named[a] = append(n.named[a], by)
	return a
}

// rules returns the rules of a list that name an atom.
func (n *nets) rules(a atom, by *difference) []int {
	for _, x := range n.named[a] {
		if x.by == by {
			return x.rules
		}
	}
	return nil
}

// letGo removes a list from an atom.
func (n *nets) letGo(a atom, by *difference) {
	n.named[a] = slices.DeleteFunc(n.named[a], func(x naming) bool { return x.by == by })
	n.users[a]--
	n.changed, n.resized = append(n.changed, a), true // of other lists that name it each has a larger part
}

// want changes the number of lists that want an atom in the tries.
func (n *nets) want(a atom, by int) {
	n.wanted[a] += by
	n.changed = append(n.changed, a)
}

// settle brings the pending changes of the tries to what lists want there. It does so once for each
// plan, because a list often takes the place of another one with the same nets.
func (n *nets) settle() {
	for _, a := range n.changed {
		if want := n.wanted[a] > 0; want != n.written[a] {
			n.each(n.net[a], func(p netip.Prefix) { n.recordMember(a, p, want) })
			n.written[a] = want
		}
		if net := n.net[a]; n.users[a] == 0 && net != (api.Net{}) {
			n.total -= n.size(a)
			delete(n.ids, net)
			n.net[a] = api.Net{}
			n.freed = append(n.freed, a)
		}
	}
	n.changed = nil
}

// each calls f with the prefixes of a net. IPv4 prefixes are sorted, because neighbours are in the
// same part of the trie.
func (n *nets) each(net api.Net, f func(netip.Prefix)) {
	if net.Set == 0 {
		f(net.Prefix)
		return
	}
	set := n.members[net.Set]
	ordered := make([]uint64, 0, len(set))
	for p := range set {
		if p = renderer.Unmapped(p); !p.Addr().Is4() {
			f(p)
			continue
		}
		b := p.Addr().As4()
		ordered = append(ordered, uint64(binary.BigEndian.Uint32(b[:]))<<8|uint64(p.Bits()))
	}
	slices.Sort(ordered)
	for _, k := range ordered {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(k>>8))
		f(netip.PrefixFrom(netip.AddrFrom4(b), int(k&0xff)))
	}
}

// recordMember records that a prefix joins or leaves an atom.
func (n *nets) recordMember(a atom, p netip.Prefix, in bool) {
	p, change := renderer.Unmapped(p), joined{a, in}
	if i, ok := n.at[p]; ok {
		n.pending[i].more = append(n.pending[i].more, change)
		return
	}
	n.at[p] = len(n.pending)
	n.pending = append(n.pending, pending{prefix: p, first: change})
}

// flush applies the pending changes to the tries. It applies all changes of a prefix at once, so
// that it creates no temporary sets of atoms.
func (n *nets) flush() {
	for _, x := range n.pending {
		changes := append([]joined{x.first}, x.more...)
		n.addresses.change(x.prefix, func(old own) own { return n.classes.owns.change(old, changes) })
	}
	n.pending = nil
	clear(n.at)
}

// update changes the members of a set. Adding a member again, or removing a missing one, has no
// effect.
func (n *nets) update(id api.SetID, added, removed []netip.Prefix) {
	if !n.given {
		added, removed = n.remember(id, added, removed)
	}
	a, named := n.ids[api.SetNet(id)]
	if !named {
		return
	}
	n.total += len(added) - len(removed)
	n.resized = true
	if !n.written[a] {
		return
	}
	for _, p := range removed {
		n.recordMember(a, p, false)
	}
	for _, p := range added {
		n.recordMember(a, p, true)
	}
}

// remember changes the members of a set, and returns the difference.
func (n *nets) remember(id api.SetID, add, remove []netip.Prefix) (added, removed []netip.Prefix) {
	set := n.members[id]
	if set == nil {
		set = make(map[netip.Prefix]struct{}, len(add))
		n.members[id] = set
	}
	for _, p := range remove {
		before := len(set) // saves a look-up
		if delete(set, p); len(set) != before {
			removed = append(removed, p)
		}
	}
	for _, p := range add {
		if !p.IsValid() {
			continue
		}
		before := len(set)
		if set[p] = struct{}{}; len(set) != before {
			added = append(added, p)
		}
	}
	if len(set) == 0 {
		delete(n.members, id)
	}
	return added, removed
}

// reuse frees atoms that no class has any more.
func (n *nets) reuse() {
	n.free = append(n.free, n.freed...)
	n.freed = nil
}

// size returns how many prefixes a net has.
func (n *nets) size(a atom) int {
	if set := n.net[a].Set; set != 0 {
		return len(n.members[set])
	}
	return 1
}

// divide sets the difference of each active list for a class, relative to the nearest ancestor that
// addresses have, which divide returns.
func (n *nets) divide(c class) (around class) {
	classes := n.classes
	for at := c; at != 0; at = classes.all[at].parent {
		if at != c && classes.all[at].used {
			return at
		}
		for _, a := range classes.owns.sets[classes.all[at].own].atoms {
			for _, x := range n.named[a] {
				if d := x.by; d.active {
					d.there = true
					d.sum = d.sum.plus(classes.owns.sums[a])
					d.rules = append(d.rules, x.rules...)
				}
			}
		}
	}
	return 0
}
