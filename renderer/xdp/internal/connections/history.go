package connections

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// History counts the changes of what any list says, in memory that packets read, and has the seed
// of the connection table, and the parity of the policy map in force. It lives as long as the
// table.
type History struct{ raw []byte }

// OpenHistory takes over a history, or begins one.
func OpenHistory(shared map[string]*ebpf.Map) (*History, error) {
	b, err := bpf.Map(shared[bpf.SluiceMapChanges])
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", bpf.SluiceMapChanges, err)
	}
	h := &History{b}
	if h.Seed() == 0 {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return nil, fmt.Errorf("seed of flows: %w", err)
		}
		copy(b, random[:])
		b[0] |= 1
	}
	h.Changed() // what packets noted may be older than this process
	return h, nil
}

func (h *History) history() *bpf.SluiceHistory {
	return (*bpf.SluiceHistory)(unsafe.Pointer(&h.raw[0]))
}

// Seed is that of the hash of the connection table.
func (h *History) Seed() uint64 { return h.history().Seed }

// Changed has packets ask lists again, each connection once. It is called behind every change.
func (h *History) Changed() { atomic.AddUint32(h.Generation(), 1) }

// Generation is the number of changes, in the memory that packets read.
func (h *History) Generation() *uint32 { return &h.history().Generation }

// Parity is that of the policy map in force, also if another process put it there: policy maps that
// follow each other have 0 and 1 in turn.
func (h *History) Parity() uint32 { return h.history().Turn & 1 }

// SetParity notes the parity of the policy map that is put in force.
func (h *History) SetParity(parity uint32) { h.history().Turn = parity }

// Close ends the mapping.
func (h *History) Close() error {
	if h == nil {
		return nil
	}
	return bpf.Unmap(&h.raw)
}
