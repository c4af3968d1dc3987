// Package connections has the connection table: the evidence that an answer answers something, by
// which packets of tracked connections pass. The program notes and reads connections; this package
// shares the table among endpoints, counts, and forgets.
package connections

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// StateUsed is the bit of the state of a place that has a connection.
const StateUsed = 1 << 46

// Table is the connection table, the ports of fragments, and what each endpoint has of both. It is
// used by one goroutine at a time, while packets read and write.
type Table struct {
	flows, fragments, limits *ebpf.Map
	shares                   []byte // by endpoint, mapped
}

// Open takes the maps of the table out of those that are shared. It does not own them. What
// endpoints have is counted anew: the table may be another one.
func Open(shared map[string]*ebpf.Map) (t *Table, err error) {
	t = &Table{flows: shared[bpf.SluiceMapFlows], fragments: shared[bpf.SluiceMapFragments], limits: shared[bpf.SluiceMapLimits]}
	if t.shares, err = bpf.Map(shared[bpf.SluiceMapShares]); err != nil {
		return nil, err
	}
	if err := t.Recount(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Places is how many connections the table has places for.
func (t *Table) Places() int { return int(t.flows.ValueSize()) / bpf.BucketBytes * bpf.BucketFlows }

// Share is what an endpoint has of what all share.
func (t *Table) Share(id uint32) *bpf.SluiceShare {
	return (*bpf.SluiceShare)(unsafe.Pointer(&t.shares[uint64(id%bpf.Places)*uint64(unsafe.Sizeof(bpf.SluiceShare{}))]))
}

// Divide has each of so many endpoints have an equal share of the table. It may have more while
// others leave room.
func (t *Table) Divide(endpoints int) error {
	limits := bpf.SluiceQuota{Flows: uint32(t.Places() / max(endpoints, 1))}
	if err := t.limits.Put(uint32(0), limits); err != nil {
		return fmt.Errorf("share of the table of flows: %w", err)
	}
	return nil
}

// Recount corrects how many places each endpoint has, while packets go on: what they change
// meanwhile is counted by them.
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
		return fmt.Errorf("table of flows: %w", err)
	}
	for i := range before {
		atomic.AddUint32(&t.Share(uint32(i)).Flows, now[i]-before[i])
	}
	return nil
}

// Each goes through the buckets of the table, in memory that packets read and write.
func (t *Table) Each(do func(b *bpf.SluiceBucket)) error {
	b, err := bpf.Map(t.flows)
	if err != nil {
		return err
	}
	for at := 0; at < int(t.flows.ValueSize()); at += bpf.BucketBytes { // what is mapped ends with a page
		do((*bpf.SluiceBucket)(unsafe.Pointer(&b[at])))
	}
	return bpf.Unmap(&b)
}

// Forget deletes all connections, and the ports of all fragments.
func (t *Table) Forget() error {
	if err := t.Each(func(b *bpf.SluiceBucket) { *b = bpf.SluiceBucket{} }); err != nil {
		return fmt.Errorf("table of flows: %w", err)
	}
	clear(t.shares)
	return t.ForgetFragments(0)
}

// ForgetFragments deletes the ports of fragments that an endpoint has, or, for 0, all endpoints
// have.
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
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // it ends when packets delete; what is left is replaced
		return fmt.Errorf("ports of fragments: %w", err)
	}
	for _, key := range keys {
		if err := t.fragments.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("ports of fragments: %w", err)
		}
	}
	return nil
}

// Close ends the mapping. The maps are their owner's.
func (t *Table) Close() error {
	if t == nil {
		return nil
	}
	return bpf.Unmap(&t.shares)
}
