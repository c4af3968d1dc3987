package xdp

import (
	"bytes"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// digests stores the digest of what the kernel enforces in a pinned map, with the version of the
// loaded programs.
type digests struct {
	stored  *ebpf.Map // nil before open
	version []byte
	secret  uint64
}

const digestPin = "mark"

func (d *digests) open(folder *pins.Folder, version [16]byte, secret uint64) (err error) {
	d.version, d.secret = version[:], secret
	spec := &ebpf.MapSpec{Name: digestPin, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(StateDigest{}) + len(version)), MaxEntries: 1}
	if d.stored, err = folder.Map(spec); err != nil {
		return fmt.Errorf("map %s: %w", digestPin, err)
	}
	return nil
}

func (d *digests) closeDigests() error {
	if d.stored == nil {
		return nil
	}
	return d.stored.Close()
}

// StateDigest implements Dataplane. It returns zero if the loaded programs are of another version
// or configuration than this process would load, so that they are replaced.
func (d *digests) StateDigest() (m StateDigest) {
	b, _ := d.stored.LookupBytes(uint32(0))
	if digest, ok := bytes.CutSuffix(b, d.version); ok && len(digest) == len(m) {
		copy(m[:], digest)
	}
	return m
}

// SetStateDigest implements Dataplane.
func (d *digests) SetStateDigest(m StateDigest) error {
	return d.stored.Put(uint32(0), append(m[:], d.version...))
}

// Secret implements Dataplane.
func (d *digests) Secret() uint64 { return d.secret }
