package memory

import "github.com/sluice-net/sluice/renderer/acl/internal/counters"

// segment tracks VPP's statistics segment, which has counters of each entry. VPP aborts when it is
// exhausted, and never frees the counters of an ACL index: an index that is given again keeps those of
// the longest list that it had.
type segment struct {
	last  counters.Usage
	asOf  int // counters that the last figure includes
	least int // counters when that figure was seen
}

// counterBytes is what the counters of an entry take of the segment, for each thread. VPP keeps
// counters in a vector whose capacity may exceed its length by half.
const counterBytes = 16 + 16/2

// usualSegment is the size of the segment unless VPP is told another one.
const usualSegment = 32 << 20

// ACLs must leave a quarter of the segment for everything else, and for what VPP cannot use any more: a
// vector that grows leaves its old place behind. Beside 14 MB of counters, 5 MB were lost so.
const segmentReserve = 4

// look takes over a figure, with the number of counters now. VPP makes figures every 10 s, so this one
// is about any moment since the previous one.
func (s *segment) look(u counters.Usage, counted int) {
	if u.Boot != s.last.Boot || s.last.Segment == 0 { // another VPP process, or the first figure: it may be older than all counters
		*s = segment{least: counted}
	} else if u.Beat != s.last.Beat {
		s.asOf, s.least = s.least, counted
	}
	s.last = u
}

// fits reports whether there is room for so many counters, of so many threads.
func (s *segment) fits(counted int, threads uint64) bool {
	added := uint64(max(0, counted-s.asOf)) * counterBytes * max(1, threads)
	return s.last.SegmentUsed+added <= s.size()-s.size()/segmentReserve
}

func (s *segment) size() uint64 {
	if s.last.Segment == 0 {
		return usualSegment
	}
	return s.last.Segment
}
