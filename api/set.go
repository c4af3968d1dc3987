package api

import (
	"crypto/sha256"
	"encoding/binary"
)

// reservedSets is the number of IDs reserved for well-known sets.
const reservedSets = 256

// NewSetID derives the ID of a set from a canonical text of its meaning, for example a selector in
// canonical form. The ID is cut from a SHA-256: collisions are improbable, and none can be
// constructed for a given victim. A caller that interns sets must still compare the texts and
// reject the second set, so that it matches nothing.
func NewSetID(canonical string) SetID {
	sum := sha256.Sum256([]byte(canonical))
	id := SetID(binary.BigEndian.Uint64(sum[:8]))
	if id < reservedSets {
		id += reservedSets
	}
	return id
}
