package api

import (
	"crypto/sha256"
	"encoding/binary"
)

// reservedSets is the number of IDs below which sets are well-known.
const reservedSets = 256

// NewSetID derives the ID of a set from a canonical text that says what the set
// means, for example a selector in canonical form. Two texts with one ID are
// improbable and cannot be found for a given victim (the ID is cut from a
// SHA-256), but whoever interns sets must compare the texts and refuse the
// second one, so that it matches nothing.
func NewSetID(canonical string) SetID {
	sum := sha256.Sum256([]byte(canonical))
	id := SetID(binary.BigEndian.Uint64(sum[:8]))
	if id < reservedSets {
		id += reservedSets
	}
	return id
}
