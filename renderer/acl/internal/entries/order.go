package entries

import (
	"cmp"
	"slices"
)

// IsLike reports whether two entries belong to the same class: they differ only in their source.
func (e *Entry) IsLike(o *Entry) bool {
	return e.Verdict == o.Verdict && e.Protocol == o.Protocol && e.SrcPort == o.SrcPort && e.DstPort == o.DstPort &&
		e.Flags == o.Flags && e.Mask == o.Mask && e.Dst == o.Dst
}

// Includes reports whether an entry matches all that another one of its class matches.
func (e *Entry) Includes(o *Entry) bool { return e.IsLike(o) && e.Src.Contains(&o.Src) }

// CompareClasses orders entries by everything except their source.
func CompareClasses(a, b *Entry) int {
	if a.IsLike(b) {
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.Verdict, b.Verdict), a.Dst.Compare(&b.Dst), cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.SrcPort.First, b.SrcPort.First), cmp.Compare(a.SrcPort.Last, b.SrcPort.Last),
		cmp.Compare(a.DstPort.First, b.DstPort.First), cmp.Compare(a.DstPort.Last, b.DstPort.Last),
		cmp.Compare(a.Flags, b.Flags), cmp.Compare(a.Mask, b.Mask),
	)
}

// CompareEntries orders entries as in segments: by class, then by source.
func CompareEntries(a, b *Entry) int {
	if c := CompareClasses(a, b); c != 0 {
		return c
	}
	return a.Src.Compare(&b.Src)
}

// IsInOrder reports whether entries are sorted by CompareEntries.
func IsInOrder(entries []Entry) bool {
	return slices.IsSortedFunc(entries, func(a, b Entry) int { return CompareEntries(&a, &b) })
}

// Flip returns the entry with source and destination exchanged.
func (e Entry) Flip() Entry {
	e.Src, e.Dst = e.Dst, e.Src
	return e
}
