package xdp

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// slotsPerLine is how many counters a line of the cache has: of each processor there are whole ones, so that
// no other writes there.
const slotsPerLine = 8

// stride is how many counters a processor has for so many slots.
func stride(slots int) int { return (slots + slotsPerLine - 1) &^ (slotsPerLine - 1) }

// counted is the i-th counter, over all processors, of which each has so many.
func counted(b []byte, i, stride int) (n uint64) {
	for at := i * bpf.HitBytes; at < len(b); at += stride * bpf.HitBytes {
		n += atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at])))
	}
	return n
}

var errClosed = errors.New("counters: the kernel is closed")

// Hits implements Plane.
func (k *Kernel) Hits(first, count uint32) ([]uint64, error) {
	k.running.RLock()
	defer k.running.RUnlock()
	if k.force.counted == nil {
		return nil, errClosed
	}
	return k.force.hits(first, min(count, uint32(k.force.slots)-min(first, uint32(k.force.slots)))), nil
}

// hits returns the packets that so many slots counted.
func (m *memory) hits(first, count uint32) []uint64 {
	out := make([]uint64, count)
	for i := range out {
		out[i] = counted(m.counted, int(first)+i, stride(m.slots))
	}
	return out
}

// Drops returns the packets that were dropped so far, by why. Any goroutine may call it, also while
// the kernel is closed, and behind that, when it fails.
func (k *Kernel) Drops() (map[Reason]uint64, error) {
	k.running.RLock()
	defer k.running.RUnlock()
	if k.dropped == nil {
		return nil, errClosed
	}
	out := map[Reason]uint64{}
	for i, name := range reasons {
		out[name] = counted(k.dropped, i, bpf.ReasonBytes/bpf.HitBytes)
	}
	delete(out, "") // those that passed are not counted
	return out, nil
}
