package xdp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// StateDigest identifies what a dataplane enforces. The zero value is what is not known.
//
// It is the exclusive or of a keyed hash of every part of the state, so that a change costs what it
// changes. The key is the dataplane's secret. With a public hash, an attacker who chooses labels
// and addresses of a few hundred pods finds memberships whose hashes cancel out, and an agent that
// starts would mistake an old state for the current one.
type StateDigest [aes.BlockSize]byte

func (m *StateDigest) toggle(part StateDigest) {
	for i := range m {
		m[i] ^= part[i]
	}
}

// digester hashes parts of a state: AES-128 in CBC-MAC over two blocks, the first of which has the
// kind of the part. One goroutine at a time may use it.
type digester struct {
	block cipher.Block
	buf   [2 * aes.BlockSize]byte
}

// newDigester returns a digester of a dataplane with a secret.
func newDigester(secret uint64) *digester {
	key := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("state digest"), secret))
	block, err := aes.NewCipher(key[:aes.BlockSize])
	if err != nil {
		panic(err) // the key has the right size
	}
	return &digester{block: block}
}

// The kinds of parts.
const (
	digestMember = 1 + iota
	digestText
)

// member returns the digest of a prefix that is in a set.
func (d *digester) member(id api.SetID, p netip.Prefix) StateDigest {
	kind, a := d.begin(digestMember), p.Addr().As16()
	binary.LittleEndian.PutUint64(kind, uint64(id))
	kind[8], kind[9] = byte(p.Bits()), byte(p.Addr().BitLen())
	return d.end(a[:])
}

// text returns the digest of a text that says something of the state.
func (d *digester) text(b []byte) StateDigest {
	d.begin(digestText)
	sum := sha256.Sum256(b)
	return d.end(sum[:aes.BlockSize])
}

// begin returns the first block, without its last byte.
func (d *digester) begin(kind byte) []byte {
	clear(d.buf[:])
	d.buf[aes.BlockSize-1] = kind
	return d.buf[:aes.BlockSize-1]
}

func (d *digester) end(second []byte) (out StateDigest) {
	first, sum := d.buf[:aes.BlockSize], d.buf[aes.BlockSize:]
	d.block.Encrypt(sum, first)
	for i := range sum {
		sum[i] ^= second[i]
	}
	d.block.Encrypt(first, sum)
	return StateDigest(first)
}
