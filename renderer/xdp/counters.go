package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Hits implements Plane.
func (k *Kernel) Hits(first, count uint32) ([]uint64, error) {
	return k.force.hits(first, min(count, uint32(k.force.slots)-min(first, uint32(k.force.slots))))
}

// atOnce is from how many counters on all are read by one call.
const atOnce = 64

// hits returns the packets that so many slots counted, over all processors.
func (m *memory) hits(first, count uint32) ([]uint64, error) {
	counters := m.coll.Maps[bpf.SluiceMapHits]
	if count > atOnce {
		if out, err := allHits(counters); err == nil {
			return out[first : first+count], nil
		} // which older kernels cannot
	}
	out := make([]uint64, count)
	for i := range count {
		var values []bpf.SluiceCounter
		if err := counters.Lookup(first+i, &values); err != nil {
			return nil, fmt.Errorf("counters: %w", err)
		}
		for _, v := range values {
			out[i] += v.Packets
		}
	}
	return out, nil
}

func allHits(counters *ebpf.Map) ([]uint64, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	n := int(counters.MaxEntries())
	keys, values := make([]uint32, n), make([]bpf.SluiceCounter, n*cpus)
	var cursor ebpf.MapBatchCursor
	got, err := counters.BatchLookup(&cursor, keys, values, nil)
	if got != n || err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that these were all
		return nil, errors.Join(fmt.Errorf("%d of %d counters could be read", got, n), err)
	}
	out := make([]uint64, n)
	for i, key := range keys {
		for _, v := range values[i*cpus : (i+1)*cpus] {
			out[key] += v.Packets
		}
	}
	return out, nil
}

// clearHits begins to count anew.
func (m *memory) clearHits() error {
	hits, err := m.hits(0, uint32(m.slots))
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	for slot, n := range hits {
		if n == 0 {
			continue
		}
		if err := m.coll.Maps[bpf.SluiceMapHits].Put(uint32(slot), make([]bpf.SluiceCounter, cpus)); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
	}
	return nil
}

// Drops returns the packets that were dropped so far, by why. Any goroutine may call it, also while
// the kernel is closed, and behind that, when it fails.
func (k *Kernel) Drops() (map[Reason]uint64, error) {
	k.running.RLock()
	defer k.running.RUnlock()
	out := map[Reason]uint64{}
	for i, name := range reasons {
		var values []bpf.SluiceCounter
		if err := k.state[bpf.SluiceMapReasons].Lookup(uint32(i), &values); err != nil {
			return nil, fmt.Errorf("counters: %w", err)
		}
		for _, v := range values {
			out[name] += v.Packets
		}
	}
	delete(out, "") // those that passed are not counted
	return out, nil
}
