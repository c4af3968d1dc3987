package mirror

import (
	"context"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// VPP counts packets by entry in a vector in its statistics segment. The vector is as long as the
// longest list that the index of the ACL has ever had; it is not freed with the ACL
// (validate_and_reset_acl_counters in acl.c). VPP reuses the indexes of deleted ACLs for new ones
// of any size. Over time every index would have had a long list, and VPP aborts when the segment is
// exhausted. Therefore long ACLs are not deleted, but emptied and kept as spares for the next long
// lists.

// SpareTag is the tag of spares. A renderer version that does not know spares deletes them.
const SpareTag = OwnPrefix + "spare"

// maxSpares is the maximum number of spares. An empty ACL takes some hundred bytes.
const maxSpares = 64

// spares are ACLs without entries that are on no interface, by index, with the length of their
// longest list so far.
type spares map[uint32]int

// isLong reports whether an ACL that has had the given number of entries is kept.
func (m *Mirror) isLong(length int) bool { return length > m.Long }

// longest returns the length of the longest list of one of our ACLs, 0 if unknown.
func (m *Mirror) longest(index uint32) int {
	if h := m.ACLs[index]; h != nil {
		return h.Longest
	}
	return 0
}

// spareFor returns the best spare for a list, and the length of the spare's longest list: the
// shortest that is long enough, or else the longest. It returns None for a short list, and when
// there is no spare.
func (m *Mirror) spareFor(length int) (index uint32, longest int) {
	index = None
	if !m.isLong(length) {
		return None, 0
	}
	for i, had := range m.Spares {
		if index == None || better(had, longest, length) || had == longest && i < index {
			index, longest = i, had
		}
	}
	delete(m.Spares, index)
	return index, longest
}

// better reports whether a spare fits a list better than another.
func better(had, other, length int) bool {
	switch fits, otherFits := had >= length, other >= length; {
	case fits != otherFits:
		return fits
	case fits:
		return had < other
	}
	return had > other
}

// spare empties and keeps one of our ACLs that no interface has. kept is false when the ACL must be
// deleted instead.
func (m *Mirror) spare(ctx context.Context, index uint32) (kept bool, err error) {
	longest := m.longest(index)
	if !m.isLong(longest) || len(m.Spares) >= maxSpares {
		return false, nil
	}
	if _, err := m.link.put(ctx, index, SpareTag, entries.Piece{}); err != nil {
		return false, err
	}
	m.Spares[index] = longest
	return true, nil
}

// Lengthen records the longest lists of ACLs from VPP's counters, where these are known. VPP has
// one counter more than entries.
func (m *Mirror) Lengthen(counters func(aclIndex uint32) (packets []uint64, ok bool)) {
	for index, h := range m.ACLs {
		if counts, ok := counters(index); ok {
			h.Longest = max(h.Longest, len(counts)-1)
		}
	}
	for index := range m.Spares {
		if counts, ok := counters(index); ok {
			m.Spares[index] = len(counts) - 1
		}
	}
}
