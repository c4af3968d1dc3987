package policymap

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// endpoints is the endpoint table: the record of each endpoint, at a place that its number has.
// Endpoints whose place another one has are in the overflow table; most nodes have none.
type endpoints struct {
	table    []byte // by place, mapped: the line of a record
	overflow *ebpf.Map
	owners   map[uint32]uint32   // by place: the endpoint that is in the table
	records  map[uint32]uint32   // by endpoint
	far      map[uint32]struct{} // the endpoints that are in the overflow table
}

// place is a place of the table, which packets may read at any time.
func (e *endpoints) place(place uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&e.table[8*uint64(place)]))
}

// flip makes a record that of an endpoint; 0 for none. grace waits for packets on their way.
func (e *endpoints) flip(id, record uint32, grace func() error) error {
	place := id % bpf.Places
	owner, taken := e.owners[place]
	switch {
	case taken && owner != id:
		return e.flipFar(id, record)
	case record == 0:
		return e.leave(id, grace)
	}
	e.owners[place], e.records[id] = id, record
	atomic.StoreUint64(e.place(place), uint64(record))
	return nil
}

// leave takes an endpoint from its place. If there is one in the overflow table that shares it,
// that one comes there: of a place that has nobody, nobody is looked for in the overflow table.
func (e *endpoints) leave(id uint32, grace func() error) error {
	delete(e.records, id)
	place := id % bpf.Places
	heir, ok := e.heir(place)
	if !ok {
		delete(e.owners, place)
		atomic.StoreUint64(e.place(place), 0)
		return e.forgetFar(id)
	}
	e.owners[place] = heir
	atomic.StoreUint64(e.place(place), uint64(e.records[heir]))
	if err := grace(); err != nil { // packets may have read the place before, and look in the overflow table yet
		return err
	}
	return errors.Join(e.forgetFar(heir), e.forgetFar(id))
}

// heir returns an endpoint in the overflow table that shares a place.
func (e *endpoints) heir(place uint32) (id uint32, ok bool) {
	for id := range e.far {
		if _, ok := e.records[id]; ok && id%bpf.Places == place {
			return id, true
		}
	}
	return 0, false
}

// forgetFar removes an endpoint from the overflow table; an earlier error may have left it there.
func (e *endpoints) forgetFar(id uint32) error {
	if _, ok := e.far[id]; !ok {
		return nil
	}
	if err := e.overflow.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	delete(e.far, id)
	return nil
}

// flipFar changes the record of an endpoint whose place another one has.
func (e *endpoints) flipFar(id, record uint32) error {
	if record == 0 {
		delete(e.records, id)
		return e.forgetFar(id)
	}
	e.records[id], e.far[id] = record, struct{}{}
	return e.overflow.Put(id, uint64(record))
}

// clear forgets all endpoints.
func (e *endpoints) clear() error {
	clear(e.table)
	for id := range e.far {
		if err := e.forgetFar(id); err != nil {
			return err
		}
	}
	clear(e.records)
	clear(e.owners)
	return nil
}

// read reads which endpoints the tables have. Records are in one of so many lines; idOf reads whose
// one is.
func (e *endpoints) read(lines uint64, idOf func(record uint32) uint32) error {
	for place := range uint32(bpf.Places) {
		record := atomic.LoadUint64(e.place(place))
		if record == 0 {
			continue
		}
		if record >= lines {
			return fmt.Errorf("the record of place %d is in line %d, and there are %d", place, record, lines)
		}
		id := idOf(uint32(record))
		e.owners[place], e.records[id] = id, uint32(record)
	}
	var id uint32
	var record uint64
	it := e.overflow.Iterate()
	for it.Next(&id, &record) {
		e.far[id] = struct{}{}
		if e.owners[id%bpf.Places] == id {
			continue // it came to its place, and the process ended before it was not in the overflow table any more
		}
		if record >= lines {
			return fmt.Errorf("the record of endpoint %d is in line %d, and there are %d", id, record, lines)
		}
		e.records[id] = uint32(record)
	}
	return it.Err()
}
