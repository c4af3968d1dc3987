package renderertest

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// memberSet is a set of prefixes that do not overlap: a sorted list, and what has changed since it
// was written. It counts members by length, so that an address is looked up once for each length.
type memberSet struct {
	list    []member        // immutable
	changes map[member]bool // members that the list lacks, and, false, members of the list that are gone
	lengths map[length]int
	size    int
}

// member is a prefix without pointers: sets of a benchmark cost no more than they must.
type member struct {
	high, low uint64
	length
}

// length is a prefix length in one family.
type length struct {
	is6  bool
	bits int16
}

func memberOf(p netip.Prefix) member {
	if a := p.Addr(); a.Is4() {
		b := a.As4()
		return member{0, 0xffff<<32 | uint64(binary.BigEndian.Uint32(b[:])), length{false, int16(p.Bits())}}
	}
	b := p.Addr().As16()
	return member{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), length{p.Addr().Is6(), int16(p.Bits())}}
}

func membersOf(prefixes []netip.Prefix) []member {
	out := make([]member, len(prefixes))
	for i, p := range prefixes {
		out[i] = memberOf(p)
	}
	return out
}

func (m member) prefix() netip.Prefix {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.high)
	binary.BigEndian.PutUint64(b[8:], m.low)
	a := netip.AddrFrom16(b)
	if !m.is6 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, int(m.bits))
}

// compare orders by family, address and length.
func (m member) compare(o member) int {
	switch {
	case m.is6 != o.is6:
		if o.is6 {
			return -1
		}
		return 1
	case m.high != o.high:
		return cmp.Compare(m.high, o.high)
	case m.low != o.low:
		return cmp.Compare(m.low, o.low)
	}
	return cmp.Compare(m.bits, o.bits)
}

func newMemberSet() *memberSet {
	return &memberSet{changes: map[member]bool{}, lengths: map[length]int{}}
}

// fewChanges is the number of changes up to which the list is not written anew.
const fewChanges = 64

// change removes and adds prefixes. It calls no with a prefix that is removed but no member, or
// added but a member.
func (s *memberSet) change(added, removed []netip.Prefix, no func(p netip.Prefix, added bool)) {
	if n := len(s.changes) + len(added) + len(removed); n > fewChanges && n > len(s.list)/16 {
		s.rewrite(membersOf(added), membersOf(removed), no)
		return
	}
	for _, p := range removed {
		s.set(memberOf(p), false, no)
	}
	for _, p := range added {
		s.set(memberOf(p), true, no)
	}
}

// set makes a prefix a member, or no member.
func (s *memberSet) set(m member, is bool, no func(p netip.Prefix, added bool)) {
	switch {
	case s.hasMember(m) == is:
		no(m.prefix(), is)
		return
	case s.listed(m) == is:
		delete(s.changes, m)
	default:
		s.changes[m] = is
	}
	d := -1
	if is {
		d = +1
	}
	s.count(m.length, d)
}

// count counts n more members of a length.
func (s *memberSet) count(l length, n int) {
	s.size += n
	if s.lengths[l] += n; s.lengths[l] == 0 {
		delete(s.lengths, l)
	}
}

// rewrite is change for many prefixes. It writes the list anew.
func (s *memberSet) rewrite(added, removed []member, no func(p netip.Prefix, added bool)) {
	rest := merge(s.sorted(), removed, func(m member, listed, gone bool) bool {
		if gone && !listed {
			no(m.prefix(), false)
		}
		return !gone
	})
	s.list = merge(rest, added, func(m member, listed, joins bool) bool {
		if listed && joins {
			no(m.prefix(), true)
		}
		return true
	})
	clear(s.changes)
	clear(s.lengths)
	s.size = 0
	for first, i := 0, 1; i <= len(s.list); i++ {
		if i == len(s.list) || s.list[i].length != s.list[first].length {
			s.count(s.list[first].length, i-first)
			first = i
		}
	}
}

// merge merges two lists of members, of which the first is sorted. keep decides about each member,
// given in which of the lists it is.
func merge(a, b []member, keep func(m member, inA, inB bool) bool) []member {
	if len(b) == 0 {
		return a
	}
	if !slices.IsSortedFunc(b, member.compare) {
		slices.SortFunc(b, member.compare)
	}
	out := make([]member, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = a[0].compare(b[0])
		}
		var m member
		if order <= 0 {
			m, a = a[0], a[1:]
		}
		if order >= 0 {
			m, b = b[0], b[1:]
		}
		twice := len(out) > 0 && out[len(out)-1] == m
		if keep(m, order <= 0 || twice, order >= 0) && !twice {
			out = append(out, m)
		}
	}
	return out
}

// listed reports whether the list has a member.
func (s *memberSet) listed(m member) bool {
	_, found := slices.BinarySearchFunc(s.list, m, member.compare)
	return found
}

// hasMember reports whether the prefix itself is a member.
func (s *memberSet) hasMember(m member) bool {
	if s == nil {
		return false
	}
	if is, changed := s.changes[m]; changed {
		return is
	}
	return s.listed(m)
}

// contains reports whether a member contains the address.
func (s *memberSet) contains(a netip.Addr) bool {
	if s == nil {
		return false
	}
	for l := range s.lengths {
		if l.is6 != a.Is6() {
			continue
		}
		p, err := a.Prefix(int(l.bits))
		if err != nil {
			continue // longer than an address: no prefix of its family
		}
		if s.hasMember(memberOf(p)) {
			return true
		}
	}
	return false
}

// overlap returns two members of which one contains the other. Members of equal length, as in every
// set of pods, cannot overlap.
func (s *memberSet) overlap() (outer, inner netip.Prefix, found bool) {
	lengths := 0
	for l := range s.lengths {
		if l.is6 {
			lengths++
		}
	}
	if lengths < 2 && len(s.lengths)-lengths < 2 {
		return outer, inner, false
	}
	// In this order, a prefix is directly followed by one that it contains, if any.
	sorted := s.sorted()
	for i, m := range sorted[:len(sorted)-1] {
		if next := sorted[i+1]; m.bits < next.bits && m.prefix().Overlaps(next.prefix()) {
			return m.prefix(), next.prefix(), true
		}
	}
	return outer, inner, false
}

// missingIn counts the members that the other set lacks.
func (s *memberSet) missingIn(o *memberSet) int {
	n := 0
	for _, m := range s.sorted() {
		if !o.hasMember(m) {
			n++
		}
	}
	return n
}

// sorted returns the members by address, short prefixes first. The caller must not change them.
func (s *memberSet) sorted() []member {
	if len(s.changes) == 0 {
		return s.list
	}
	var added, removed []member
	for m, is := range s.changes {
		if is {
			added = append(added, m)
		} else {
			removed = append(removed, m)
		}
	}
	rest := merge(s.list, removed, func(_ member, _, gone bool) bool { return !gone })
	return merge(rest, added, func(member, bool, bool) bool { return true })
}

// prefixes returns the members as sorted returns them.
func (s *memberSet) prefixes() []netip.Prefix {
	sorted := s.sorted()
	out := make([]netip.Prefix, len(sorted))
	for i, m := range sorted {
		out[i] = m.prefix()
	}
	return out
}
