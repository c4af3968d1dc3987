// Package connections manages the connection table, which lets replies of permitted connections
// pass. The program creates and reads its entries. This package divides the table among endpoints,
// counts entries, and deletes them.
package connections

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// StateUsed is the state bit of an entry that is in use.
const StateUsed = 1 << 46

// Table is the connection table, the table of fragments, and the usage of each endpoint. One
// goroutine at a time may use it; programs read and write the maps at the same time.
type Table struct {
	flows, fragments, limits *ebpf.Map
	shares                   []byte // by endpoint, mapped
}

// Open takes the maps of the table from the shared maps, and does not own them. It counts the
// entries of endpoints anew, because the table may have been replaced.
func Open(shared map[string]*ebpf.Map) (t *Table, err error) {
	t = &Table{flows: shared[bpf.SluiceMapConns], fragments: shared[bpf.SluiceMapFrags], limits: shared[bpf.SluiceMapLimits]}
	if t.shares, err = bpf.Map(shared[bpf.SluiceMapShares]); err != nil {
		return nil, err
	}
	if err := t.Recount(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Places returns the capacity of the table in connections.
func (t *Table) Places() int { return int(t.flows.ValueSize()) / bpf.BucketBytes * bpf.BucketFlows }

// Share returns the usage of an endpoint, in memory that programs read and write.
func (t *Table) Share(id uint32) *bpf.SluiceShare {
	return (*bpf.SluiceShare)(unsafe.Pointer(&t.shares[uint64(id%bpf.Places)*uint64(unsafe.Sizeof(bpf.SluiceShare{}))]))
}

// Divide sets the share of the table to an equal part for each of the given number of endpoints. An
// endpoint may have more than its share while others leave room.
func (t *Table) Divide(endpoints int) error {
	limits := bpf.SluiceQuota{Flows: uint32(t.Places() / max(endpoints, 1))}
	if err := t.limits.Put(uint32(0), limits); err != nil {
		return fmt.Errorf("set shares of the connection table: %w", err)
	}
	return nil
}

// Recount corrects the number of entries of each endpoint. Programs may change the table meanwhile,
// and count these changes themselves.
func (t *Table) Recount() error {
	before, now := make([]uint32, bpf.Places), make([]uint32, bpf.Places)
	for i := range before {
		before[i] = atomic.LoadUint32(&t.Share(uint32(i)).Flows)
	}
	err := t.Each(func(b *bpf.SluiceBucket) {
		for i := range b.Flow {
			if atomic.LoadUint64(&b.Flow[i].State)&StateUsed != 0 {
				now[b.Flow[i].Ports>>32%bpf.Places]++
			}
		}
	})
	if err != nil {
		return fmt.Errorf("connection table: %w", err)
	}
	for i := range before {
		atomic.AddUint32(&t.Share(uint32(i)).Flows, now[i]-before[i])
	}
	return nil
}

// Each calls do for every bucket of the table, in memory that programs read and write.
func (t *Table) Each(do func(b *bpf.SluiceBucket)) error {
	b, err := bpf.Map(t.flows)
	if err != nil {
		return err
	}
	for at := 0; at < int(t.flows.ValueSize()); at += bpf.BucketBytes { // the mapping is rounded up to whole pages
		do((*bpf.SluiceBucket)(unsafe.Pointer(&b[at])))
	}
	return bpf.Unmap(&b)
}

// Forget deletes all connections and fragments.
func (t *Table) Forget() error {
	if err := t.Each(func(b *bpf.SluiceBucket) { *b = bpf.SluiceBucket{} }); err != nil {
		return fmt.Errorf("connection table: %w", err)
	}
	clear(t.shares)
	return t.ForgetFragments(0)
}

// ForgetFragments deletes the fragments of an endpoint; 0 means all endpoints.
func (t *Table) ForgetFragments(id uint32) error {
	var keys []bpf.SluiceFragmentKey
	var key bpf.SluiceFragmentKey
	var value bpf.SluiceFragment
	it := t.fragments.Iterate()
	for it.Next(&key, &value) {
		if id == 0 || key.Id == id {
			keys = append(keys, key)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // a concurrent delete ends the iteration; remaining entries expire
		return fmt.Errorf("table of fragments: %w", err)
	}
	for _, key := range keys {
		if err := t.fragments.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("table of fragments: %w", err)
		}
	}
	return nil
}

// Close unmaps the memory. It does not close the maps.
func (t *Table) Close() error {
	if t == nil {
		return nil
	}
	return bpf.Unmap(&t.shares)
}
