package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// StateDigest identifies the policy that a dataplane enforces. The zero value means unknown.
//
// It is the exclusive or of a keyed hash of every part of the state, so that a change costs what it
// changes. The key is the dataplane's secret. With a public hash, an attacker who chooses labels
// and addresses of a few hundred pods finds memberships whose hashes cancel out. An agent that
// starts would then mistake an old state for the current one.
type StateDigest [16]byte

func (m *StateDigest) toggle(part StateDigest) {
	for i := range m {
		m[i] ^= part[i]
	}
}

// digester hashes parts of a state with the secret of a dataplane: the first 16 bytes of a SHA-256
// of the secret and the part. Parts of a kind begin with a letter of their own.
type digester uint64

// member returns the digest of a prefix that is in a set.
func (d digester) member(id api.SetID, p netip.Prefix) StateDigest {
	var buf [48]byte
	b := binary.LittleEndian.AppendUint64(append(d.key(buf[:0]), 'm'), uint64(id))
	a := p.Addr().As16()
	return half(append(append(b, a[:]...), byte(p.Bits()), byte(p.Addr().BitLen())))
}

// text returns the digest of a text that describes a part of the state.
func (d digester) text(b []byte) StateDigest { return half(append(append(d.key(nil), 't'), b...)) }

func (d digester) key(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, uint64(d)) }

func half(b []byte) StateDigest {
	sum := sha256.Sum256(b)
	return StateDigest(sum[:len(StateDigest{})])
}
