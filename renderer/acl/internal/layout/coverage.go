package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// coverage is the part of a class's members that segments hold.
type coverage struct {
	*class
	covered []bool
	inside  map[int][]entries.Net // parts of members that are not covered completely
}

// compare checks the entries of a class in one segment, and those of earlier classes, which no
// longer exist.
func (f *coverage) compare(s *segment) {
	at := 0 // members before at end before the entry
	for ; s.at < len(s.old.Entries); s.at++ {
		e := &s.old.Entries[s.at]
		if !e.IsLike(&f.of) {
			if entries.CompareClasses(e, &f.of) > 0 {
				return
			}
			s.replace(nil)
			continue
		}
		at = f.seek(at, &e.Src)
		f.entry(s, at)
	}
}

// seek returns the first member from at on that does not end before a prefix. It searches in
// growing steps.
func (f *coverage) seek(at int, p *entries.Net) int {
	before := func(i int) bool {
		m := &f.members[i].prefix
		return m.StartsBefore(p) && !m.Contains(p)
	}
	step := 1
	for at+step-1 < len(f.members) && before(at+step-1) {
		at += step
		step *= 2
	}
	for n := min(at+step, len(f.members)); at < n; {
		if mid := at + (n-at)/2; before(mid) {
			at = mid + 1
		} else {
			n = mid
		}
	}
	return at
}

// entry checks one entry of a segment. at is the first member that does not end before it.
func (f *coverage) entry(s *segment, at int) {
	p := s.old.Entries[s.at].Src
	if at < len(f.members) {
		switch m := &f.members[at]; {
		case m.prefix == p:
			f.covered[at] = true
			s.attribute(s.at, m.rule)
			return
		case m.prefix.Contains(&p) && m.prefix.Bits() < p.Bits():
			if f.inside == nil {
				f.inside = make(map[int][]entries.Net)
			}
			f.inside[at] = append(f.inside[at], p)
			s.attribute(s.at, m.rule)
			return
		}
	}
	var with []ruled
	var parts []entries.Net
	for ; at < len(f.members) && p.Contains(&f.members[at].prefix); at++ {
		m := f.members[at]
		f.covered[at] = true
		parts = append(parts, m.prefix)
		with = append(with, ruled{f.class.entry(m.prefix), m.rule})
	}
	if len(with) > 0 && len(without(p, parts)) == 0 {
		s.attribute(s.at, with[0].rule)
		return
	}
	s.replace(with)
}

// maxParts is the maximum number of prefixes that may replace a prefix of which most is already
// present.
const maxParts = 16

// missing appends what no segment holds: all of it, or only something of it.
func (f *coverage) missing(out []ruled, all bool) []ruled {
	for i, m := range f.members {
		if f.covered[i] {
			continue
		}
		if !all && len(out) > 0 {
			break
		}
		if all && len(out) == cap(out) {
			out = slices.Grow(out, len(f.members)-i)
		}
		if len(f.inside[i]) == 0 {
			out = append(out, ruled{f.class.entry(m.prefix), m.rule})
			continue
		}
		parts := without(m.prefix, f.inside[i])
		if len(parts) > maxParts {
			parts = []entries.Net{m.prefix}
		}
		for _, p := range parts {
			out = append(out, ruled{f.class.entry(p), m.rule})
		}
	}
	return out
}
