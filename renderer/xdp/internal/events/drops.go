package events

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// ErrClosed is returned by who reads counters when the kernel is closed.
var ErrClosed = errors.New("counters: the kernel is closed")

// Drops counts dropped packets by the number of the reason. Any goroutine may use it, also while it
// is closed.
type Drops struct {
	mu       sync.RWMutex // read while counters are read
	counters []byte       // of all processors, mapped; nil when closed
}

// OpenDrops takes the counters out of the shared maps.
func OpenDrops(shared map[string]*ebpf.Map) (*Drops, error) {
	b, err := bpf.Map(shared[bpf.SluiceMapReasons])
	return &Drops{counters: b}, err
}

// Count returns the packets that were dropped so far, by the number of the reason. It fails when
// closed.
func (d *Drops) Count() (out [bpf.ReasonBytes / bpf.HitBytes]uint64, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.counters == nil {
		return out, ErrClosed
	}
	for i := range out {
		out[i] = bpf.Sum(d.counters, i, len(out))
	}
	return out, nil
}

// Close ends the mapping.
func (d *Drops) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return bpf.Unmap(&d.counters)
}
