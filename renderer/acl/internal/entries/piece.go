package entries

import (
	"errors"

	"github.com/sluice-net/sluice/renderer"
)

// ErrTooLarge is returned when a table exceeds the limits of VPP. The pods keep their rules. It is
// a renderer.Refusal, unless it is joined with ErrMayPass.
var ErrTooLarge = renderer.Refusal("too many entries")

// ErrMayPass accompanies ErrTooLarge where other owners may free resources at any moment without
// notice to the renderer. Such an Apply is retried.
var ErrMayPass = errors.New("resources may become free, so it is retried")

// MaxEntries is the maximum number of entries of one ACL. VPP aborts when it must dump an ACL that
// exceeds its 16 MB API segment.
const MaxEntries = 16_000

// Piece is the content of one ACL.
type Piece struct {
	Digest  Digest
	Count   int     // number of entries
	Entries []Entry // shared, and never changed
	Rules   []int32 // nil when the entries come from no table
}

// NewPiece returns the piece with the given entries; rules may be nil. It keeps both slices.
func NewPiece(entries []Entry, rules []int32) Piece {
	return Piece{Digest: DigestOf(entries), Count: len(entries), Entries: entries, Rules: rules}
}

// CountOf returns the number of entries of pieces.
func CountOf(pieces []Piece) int {
	n := 0
	for _, p := range pieces {
		n += p.Count
	}
	return n
}

// Cut splits a list into pieces of at most some entries. The cuts depend only on the entries, so that an
// entry that is added or removed changes only one piece.
func Cut(x List, most int) []Piece {
	if len(x.Entries) <= most {
		return []Piece{NewPiece(x.Entries, x.Rules)}
	}
	var out []Piece
	for start := 0; start < len(x.Entries); {
		end := min(start+most, len(x.Entries))
		for i := start + most/4; i < end; i++ {
			if isBoundary(&x.Entries[i]) {
				end = i
				break
			}
		}
		out = append(out, NewPiece(x.Entries[start:end:end], x.Rules[start:end:end]))
		start = end
	}
	return out
}

// isBoundary selects about one entry in 4 000 by its content.
func isBoundary(e *Entry) bool {
	var buf [64]byte
	h := uint32(2166136261)
	for _, b := range e.append(buf[:0]) {
		h = (h ^ uint32(b)) * 16777619
	}
	return h%4001 == 0
}

// List is a table, or a part of one, as VPP entries.
type List struct {
	Entries []Entry
	Rules   []int32 // for each entry, the index of the first table rule that it represents
}

// Add appends entries for a rule.
func (x *List) Add(rule int32, entries ...Entry) {
	for _, e := range entries {
		x.Entries, x.Rules = append(x.Entries, e), append(x.Rules, rule)
	}
}
