package entries

import (
	"errors"

	"github.com/sluice-net/sluice/renderer"
)

// ErrTooLarge is returned when a table is larger than VPP can be asked to hold.
// The pods keep the rules they have. It is a renderer.Refusal, unless it comes with
// ErrMayPass.
var ErrTooLarge = renderer.Refusal("too many entries")

// ErrMayPass goes with ErrTooLarge where others may make room at any moment, which nothing
// notifies the renderer of: such a commit is tried again.
var ErrMayPass = errors.New("others may make room, so it is tried again")

// MaxEntries is how many entries one ACL may have: VPP aborts when it is asked
// to dump an ACL that exceeds its 16 MB API segment.
const MaxEntries = 16_000

// Piece is the content of one ACL.
type Piece struct {
	Digest  Digest
	Count   int     // of entries
	Entries []Entry // forgotten once they are installed, unless several ACLs may change together
	Rules   []int32 // nil where the entries come from no table
}

// NewPiece returns the piece of some entries; rules may be nil. It keeps both slices.
func NewPiece(entries []Entry, rules []int32) Piece {
	return Piece{Digest: DigestOf(entries), Count: len(entries), Entries: entries, Rules: rules}
}

// Cut divides an expansion into pieces that VPP can hold. Where it is cut depends
// on the entries alone, so that an entry that comes or goes changes one piece.
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

// isBoundary is true for about one entry in 4 000, by its content.
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
	Rules   []int32 // per entry, the index of the first of the table's rules that it stands for
}

// Add appends entries that stand for a rule.
func (x *List) Add(rule int32, entries ...Entry) {
	for _, e := range entries {
		x.Entries, x.Rules = append(x.Entries, e), append(x.Rules, rule)
	}
}
