package cache

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
)

// matches encodes the indexes of the rules whose peer side contains an address, in a form that
// works as a map key.
type matches string

// verdict is the result of a list for one address: which rules match and what they permit. The zero
// value means "not computed".
type verdict struct {
	known   bool
	class   uint32 // number of the result within the list
	matches matches
	allowed traffic.Traffic
	rules   int // how many rules express allowed
}

// maxMemo bounds list.byMatches, whose size depends on history. When it is full it is dropped.
const maxMemo = 1 << 14

// count returns the number of rules.
func (m matches) count() int { return len(m) / 4 }

// indexes decodes the rule indexes.
func (m matches) indexes() []uint32 {
	out := make([]uint32, 0, m.count())
	for b := []byte(m); len(b) > 0; b = b[4:] {
		out = append(out, binary.BigEndian.Uint32(b))
	}
	return out
}
