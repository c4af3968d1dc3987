package xdp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/subtle"
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

func (m *StateDigest) toggle(part StateDigest) { subtle.XORBytes(m[:], m[:], part[:]) }

// digester hashes parts of a state with the secret of a dataplane.
type digester struct {
	secret uint64
	block  cipher.Block // its key is derived from the secret
}

func newDigester(secret uint64) digester {
	d := digester{secret: secret}
	key := d.hash('k', nil)
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	d.block = block
	return d
}

// text returns the digest of a text that describes a part of the state.
func (d digester) text(b []byte) StateDigest { return d.hash('t', b) }

// hash returns the first 16 bytes of the SHA-256 of the secret, a letter for the purpose, and a
// text.
func (d digester) hash(purpose byte, text []byte) StateDigest {
	b := append(binary.LittleEndian.AppendUint64(nil, d.secret), purpose)
	sum := sha256.Sum256(append(b, text...))
	return StateDigest(sum[:len(StateDigest{})])
}

// members returns a function that returns the digests of the prefixes of a set. There are so many
// that SHA-256 is too slow. The digest is the CBC-MAC, with AES, of two blocks: the set and the
// length of the prefix, which mostly repeat, and the address. For texts of equal length that is a
// pseudorandom function.
func (d digester) members(id api.SetID) func(netip.Prefix) StateDigest {
	var first, mac, m StateDigest // blocks of AES are as large
	binary.LittleEndian.PutUint64(first[:], uint64(id))
	return func(p netip.Prefix) StateDigest {
		if bits, of := byte(p.Bits()), byte(p.Addr().BitLen()); first[8] != bits || first[9] != of || of == 0 {
			first[8], first[9] = bits, of
			d.block.Encrypt(mac[:], first[:])
		}
		m = StateDigest(p.Addr().As16())
		m.toggle(mac)
		d.block.Encrypt(m[:], m[:])
		return m
	}
}
