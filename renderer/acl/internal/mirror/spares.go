package mirror

import (
	"context"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// VPP counts what each entry of an ACL decides, in a vector in its statistics segment that is as
// long as the longest list that the number of the ACL has ever had: it is not freed with the ACL
// (validate_and_reset_acl_counters in acl.c). VPP gives the numbers of deleted ACLs to new ones,
// whatever their size, so that by and by each number has had a long list, and VPP aborts when the
// segment is used up. So long ACLs are not deleted. They are emptied and kept as spares, which the
// next long lists are put in.

// SpareTag is the tag of spares. A renderer that does not know it deletes them.
const SpareTag = OwnPrefix + "spare"

// maxSpares is how many spares there are at most. An empty ACL takes some hundred bytes.
const maxSpares = 64

// spares are ACLs without entries that no interface has, by index: how long a list they have had.
type spares map[uint32]int

// isLong reports whether an ACL that has had so many entries is kept.
func (m *Mirror) isLong(length int) bool { return length > m.Long }

// longest returns how long a list an ACL of ours has had, 0 for none.
func (m *Mirror) longest(index uint32) int {
	if h := m.ACLs[index]; h != nil {
		return h.Longest
	}
	return 0
}

// spareFor takes the spare that fits a list best, and returns how long a list that has had: the
// shortest that is long enough, or else the longest. It returns none for a short list, and where
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

// better reports whether one spare fits a list better than another.
func better(had, other, length int) bool {
	switch fits, otherFits := had >= length, other >= length; {
	case fits != otherFits:
		return fits
	case fits:
		return had < other
	}
	return had > other
}

// spare empties an ACL of ours that no interface has and keeps it. It is false when it is to be
// deleted.
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

// Lengthen notes how long lists ACLs have had, as far as VPP says it. It has one counter more than
// entries.
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
