package events

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// ErrClosed is returned by reads of counters after the kernel was closed.
var ErrClosed = errors.New("counters: the kernel is closed")

// Drops has the number of dropped packets by reason. It is safe for concurrent use, also during
// Close.
type Drops struct {
	mu       sync.RWMutex // read-locked while counters are read
	counters []byte       // of all processors, mapped; nil when closed
}

// OpenDrops takes the counters from the shared maps.
func OpenDrops(shared map[string]*ebpf.Map) (*Drops, error) {
	b, err := bpf.Map(shared[bpf.SluiceMapDrops])
	return &Drops{counters: b}, err
}

// Count returns how many packets were dropped so far, by the number of the reason. It returns
// ErrClosed after Close.
func (d *Drops) Count() (out [bpf.DropBytes / bpf.CounterBytes]uint64, err error) {
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

// Close unmaps the memory.
func (d *Drops) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return bpf.Unmap(&d.counters)
}
