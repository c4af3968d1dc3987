package entries

import (
	"errors"
	"unsafe"

	"github.com/sluice-net/sluice/internal/interned"
	"github.com/sluice-net/sluice/renderer"
)

// ErrTooLarge is returned when a table exceeds the limits of VPP. The pods keep their rules. It is
// a renderer.Refusal, unless it is joined with ErrMayPass.
var ErrTooLarge = renderer.Refusal("too many entries")

// ErrMayPass accompanies ErrTooLarge where other owners may free resources at any moment without
// notice to the renderer. Such a commit is retried.
var ErrMayPass = errors.New("resources may become free, so it is retried")

// MaxEntries is the maximum number of entries of one ACL. VPP aborts when it must dump an ACL that
// exceeds its 16 MB API segment.
const MaxEntries = 16_000

// Piece is the content of one ACL.
type Piece struct {
	Digest  Digest
	Count   int     // number of entries
	Entries []Entry // dropped after installation, unless several ACLs may change together
	Rules   []int32 // nil when the entries come from no table
}

// NewPiece returns the piece with the given entries; rules may be nil. It keeps both slices.
func NewPiece(entries []Entry, rules []int32) Piece {
	return Piece{Digest: DigestOf(entries), Count: len(entries), Entries: entries, Rules: rules}
}

// Computed are values by a digest of what they were computed of. Each is found until a garbage
// collection after its last use.
type Computed[V any] = interned.Values[Digest, V]

// shared has the first entry of pieces in use, by digest.
var shared Computed[Entry]

// Share returns a piece with the entries that an equal one in use has, so that they are stored
// once: the tables of many pods begin with the same peers. The piece must have entries of its own,
// which are not a part of a longer list.
func Share(p Piece) Piece {
	if p.Count == 0 {
		return p
	}
	if first := shared.Get(p.Digest); first != nil {
		p.Entries = unsafe.Slice(first, p.Count)
	} else {
		shared.Put(p.Digest, &p.Entries[0])
	}
	return p
}

// CountOf returns the number of entries of pieces.
func CountOf(pieces []Piece) int {
	n := 0
	for _, p := range pieces {
		n += p.Count
	}
	return n
}

// Cut splits a list into pieces that VPP can hold. The cuts depend only on the entries, so that an
// entry that is added or removed changes only one piece.
func Cut(x List) []Piece {
	if len(x.Entries) <= MaxEntries {
		return []Piece{NewPiece(x.Entries, x.Rules)}
	}
	var out []Piece
	for start := 0; start < len(x.Entries); {
		end := min(start+MaxEntries, len(x.Entries))
		for i := start + MaxEntries/4; i < end; i++ {
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

// Run is a block of a list: a maximal run of entries with one verdict.
type Run struct {
	Verdict Verdict
	Count   int
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
