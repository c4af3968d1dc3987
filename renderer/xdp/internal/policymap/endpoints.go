package policymap

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// endpoints is the endpoint table: the record of each endpoint, indexed by the low bits of its ID.
// An endpoint whose place is taken is in the endpoint overflow table; on most nodes that is empty.
type endpoints struct {
	table      []byte // by place, mapped: the line of the record
	overflow   *ebpf.Map
	owners     map[uint32]uint32   // by place: the endpoint in the table
	records    map[uint32]uint32   // by endpoint
	overflowed map[uint32]struct{} // the endpoints in the overflow table
}

// place returns a place of the table, which programs may read at any time.
func (e *endpoints) place(place uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&e.table[8*uint64(place)]))
}

// flip sets the record of an endpoint; 0 removes it. The given function waits for packets in
// flight.
func (e *endpoints) flip(id, record uint32, grace func() error) error {
	place := id % bpf.Places
	owner, taken := e.owners[place]
	switch {
	case taken && owner != id:
		return e.flipOverflow(id, record)
	case record == 0:
		return e.leave(id, grace)
	}
	e.owners[place], e.records[id] = id, record
	atomic.StoreUint64(e.place(place), uint64(record))
	return nil
}

// leave removes an endpoint from its place. An endpoint in the overflow table with the same place
// moves there, because programs do not look into the overflow table if a place is empty.
func (e *endpoints) leave(id uint32, grace func() error) error {
	delete(e.records, id)
	place := id % bpf.Places
	successor, ok := e.successor(place)
	if !ok {
		delete(e.owners, place)
		atomic.StoreUint64(e.place(place), 0)
		return e.removeOverflow(id)
	}
	e.owners[place] = successor
	atomic.StoreUint64(e.place(place), uint64(e.records[successor]))
	if err := grace(); err != nil { // a packet that read the place before may still look into the overflow table
		return err
	}
	return errors.Join(e.removeOverflow(successor), e.removeOverflow(id))
}

// successor returns an endpoint in the overflow table that has a place.
func (e *endpoints) successor(place uint32) (id uint32, ok bool) {
	for id := range e.overflowed {
		if _, ok := e.records[id]; ok && id%bpf.Places == place {
			return id, true
		}
	}
	return 0, false
}

// stored reads the record of an endpoint from the tables, 0 for none.
func (e *endpoints) stored(id uint32) (record uint64, err error) {
	place := id % bpf.Places
	if owner, taken := e.owners[place]; taken && owner == id {
		return atomic.LoadUint64(e.place(place)), nil
	}
	err = e.overflow.Lookup(id, &record)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return record, err
}

// removeOverflow removes an endpoint from the overflow table; an earlier error may have left it
// there.
func (e *endpoints) removeOverflow(id uint32) error {
	if _, ok := e.overflowed[id]; !ok {
		return nil
	}
	if err := e.overflow.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	delete(e.overflowed, id)
	return nil
}

// flipOverflow sets the record of an endpoint whose place is taken.
func (e *endpoints) flipOverflow(id, record uint32) error {
	if record == 0 {
		delete(e.records, id)
		return e.removeOverflow(id)
	}
	e.records[id], e.overflowed[id] = record, struct{}{}
	return e.overflow.Put(id, uint64(record))
}

// clear removes all endpoints.
func (e *endpoints) clear() error {
	clear(e.table)
	for id := range e.overflowed {
		if err := e.removeOverflow(id); err != nil {
			return err
		}
	}
	clear(e.records)
	clear(e.owners)
	return nil
}

// read reads the content of the tables. The policy map has so many lines; idOf returns the endpoint
// of a record.
func (e *endpoints) read(lines uint64, idOf func(record uint32) uint32) error {
	for place := range uint32(bpf.Places) {
		record := atomic.LoadUint64(e.place(place))
		if record == 0 {
			continue
		}
		if record >= lines {
			return fmt.Errorf("invalid record of place %d: line %d of %d", place, record, lines)
		}
		id := idOf(uint32(record))
		e.owners[place], e.records[id] = id, uint32(record)
	}
	var id uint32
	var record uint64
	it := e.overflow.Iterate()
	for it.Next(&id, &record) {
		e.overflowed[id] = struct{}{}
		if e.owners[id%bpf.Places] == id {
			continue // it moved to its place, but the process ended before it removed the overflow entry
		}
		if record >= lines {
			return fmt.Errorf("invalid record of endpoint %d: line %d of %d", id, record, lines)
		}
		e.records[id] = uint32(record)
	}
	return it.Err()
}
