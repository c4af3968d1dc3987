package connections

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// History is the map that programs read for every packet. It counts the changes of any list (the
// generation), and stores the seed of the connection table and the parity of the policy map in
// force. It is pinned with the connection table.
type History struct{ raw []byte }

// OpenHistory adopts a history, or starts one.
func OpenHistory(shared map[string]*ebpf.Map) (*History, error) {
	b, err := bpf.Map(shared[bpf.SluiceMapChanges])
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", bpf.SluiceMapChanges, err)
	}
	h := &History{b}
	if h.Seed() == 0 {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return nil, fmt.Errorf("seed of the connection table: %w", err)
		}
		copy(b, random[:])
		b[0] |= 1
	}
	h.Changed() // verdicts that packets cached may be older than this process
	return h, nil
}

func (h *History) history() *bpf.SluiceHistory {
	return (*bpf.SluiceHistory)(unsafe.Pointer(&h.raw[0]))
}

// Seed returns the seed of the hash of the connection table.
func (h *History) Seed() uint64 { return h.history().Seed }

// Changed starts a new generation: the next packet of each connection evaluates its list again. It
// must be called after every change.
func (h *History) Changed() { atomic.AddUint32(h.Generation(), 1) }

// Generation returns the number of changes, in memory that programs read.
func (h *History) Generation() *uint32 { return &h.history().Generation }

// Parity returns the parity of the policy map in force, also if an earlier process put it in force.
// Successive policy maps have parity 0 and 1 in turn.
func (h *History) Parity() uint32 { return h.history().Parity & 1 }

// SetParity sets the parity of the policy map that is put in force.
func (h *History) SetParity(parity uint32) { h.history().Parity = parity }

// Close unmaps the memory.
func (h *History) Close() error {
	if h == nil {
		return nil
	}
	return bpf.Unmap(&h.raw)
}
