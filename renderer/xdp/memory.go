package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// memory is one set of programs with its maps.
type memory struct {
	coll    *ebpf.Collection
	asked   map[string]*ebpf.Program // those that are not in coll, since they were asked; guarded by Kernel.loading
	bytes   []byte                   // of mem, mapped
	ends    []byte                   // of ends, mapped
	slots   int
	counted []byte                // of hits, mapped
	turn    uint32                // see history
	senders layout                // by which its programs know who sends
	ids     map[uint32]uint32     // by place: the endpoint that is in ends
	recs    map[uint32]uint32     // records by endpoint
	far     map[uint32]struct{}   // the endpoints that are in far: most nodes have none
	names   map[netip.Addr]uint32 // of what the kernel knows by address: the endpoint
}

// minLines is what a memory has at least: the cells of all addresses, and as much for the rest. With
// very few the verifier proves that nothing can be read.
const minLines = 1 << 13

// firstLines and firstSlots are what the first memory has, so that it is large enough for most
// nodes to begin with: 1 MiB.
const (
	firstLines = 1 << 14
	firstSlots = 256
)

func (m *memory) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, b := range []*[]byte{&m.bytes, &m.ends, &m.counted} {
		if *b != nil {
			errs = append(errs, unix.Munmap(*b))
			*b = nil
		}
	}
	for _, p := range m.asked {
		errs = append(errs, p.Close())
	}
	m.coll.Close()
	return errors.Join(errs...)
}

// word is a word of memory, which packets may read at any time.
func (m *memory) word(i uint32) *uint32 { return (*uint32)(unsafe.Pointer(&m.bytes[4*uint64(i)])) }

// end is a place of ends.
func (m *memory) end(place uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&m.ends[8*uint64(place)]))
}

func (k *Kernel) written() *memory {
	if k.next != nil {
		return k.next
	}
	return k.force
}

// Size implements Plane.
func (k *Kernel) Size() (lines, slots int) {
	m := k.written()
	return len(m.bytes) / bpf.LineBytes, m.slots
}

// Prepare implements Plane.
func (k *Kernel) Prepare(lines, slots int) error {
	err := k.dropNext()
	if err != nil {
		return err
	}
	if k.blank && len(k.links)+len(k.uplinks)+len(k.stack) == 0 && k.force.holds(lines, slots) { // nobody would see a difference
		k.next = k.force
		k.writes++
		return k.force.clear()
	}
	k.blank = false
	if k.next, err = k.takeSpare(lines, slots); err == nil && k.next == nil {
		k.next, err = k.load(lines, slots)
	}
	return err
}

// dropNext has no memory be prepared.
func (k *Kernel) dropNext() error {
	next := k.next
	k.next = nil
	switch {
	case next == k.force: // it was blank, and goes on
		return nil
	case k.options.KeepSpare && k.spare == nil:
		k.spare = next
		return nil
	}
	return next.close()
}

// takeSpare returns the spare memory, with nothing in it, if it is large enough.
func (k *Kernel) takeSpare(lines, slots int) (*memory, error) {
	m := k.spare
	if m == nil || !m.holds(lines, slots) || m.senders != k.senders.now() {
		return nil, nil
	}
	if k.options.Mode != ModeNone { // else packets run when they are asked about, one by one
		if err := k.Grace(); err != nil {
			return nil, err
		}
	}
	if err := m.clear(); err != nil {
		return nil, err
	}
	k.spare = nil
	return m, nil
}

// holds says whether a memory is large enough.
func (m *memory) holds(lines, slots int) bool {
	return len(m.bytes) >= lines*bpf.LineBytes && m.slots >= slots
}

// clear makes a memory in which nothing is of one that nobody runs.
func (m *memory) clear() error {
	clear(m.bytes)
	clear(m.ends)
	for id := range m.far {
		if err := m.forgetFar(id); err != nil {
			return err
		}
	}
	clear(m.recs)
	clear(m.ids)
	for ip := range m.names {
		if err := m.forget(ip); err != nil {
			return err
		}
	}
	clear(m.counted)
	return nil
}

// Write implements Plane.
func (k *Kernel) Write(line uint32, content []compile.Line) error {
	if len(content) == 0 {
		return nil
	}
	k.writes++
	from := unsafe.Slice((*byte)(unsafe.Pointer(&content[0])), len(content)*bpf.LineBytes)
	to := k.written().bytes[uint64(line)*bpf.LineBytes:]
	if len(to) < len(from) {
		return fmt.Errorf("memory has no line %d", int(line)+len(content))
	}
	copy(to, from)
	return nil
}

// Store implements Plane.
func (k *Kernel) Store(word, value uint32) error {
	k.writes++
	atomic.StoreUint32(k.written().word(word), value)
	k.history.changed()
	return nil
}

// places of endpoints in ends.
const places = 16384

// Flip implements Plane.
func (k *Kernel) Flip(id, record uint32) error {
	k.writes++
	defer k.history.changed() // also when it is not known whether it failed
	m := k.written()
	place := id % places
	owner, taken := m.ids[place]
	switch {
	case taken && owner != id:
		return m.flipFar(id, record)
	case record == 0:
		return k.leave(m, id)
	}
	m.ids[place], m.recs[id] = id, record
	atomic.StoreUint64(m.end(place), uint64(record))
	return nil
}

// leave takes an endpoint from its place. If there is one in far that shares it, that one comes there:
// of a place that has nobody, nobody is looked for in far.
func (k *Kernel) leave(m *memory, id uint32) error {
	delete(m.recs, id)
	place := id % places
	heir, ok := m.heir(place)
	if !ok {
		delete(m.ids, place)
		atomic.StoreUint64(m.end(place), 0)
		return m.forgetFar(id)
	}
	m.ids[place] = heir
	atomic.StoreUint64(m.end(place), uint64(m.recs[heir]))
	if err := k.Grace(); err != nil { // packets may have read the place before, and look in far yet
		return err
	}
	return errors.Join(m.forgetFar(heir), m.forgetFar(id))
}

// heir returns an endpoint in far that shares a place.
func (m *memory) heir(place uint32) (id uint32, ok bool) {
	for id := range m.far {
		if _, ok := m.recs[id]; ok && id%places == place {
			return id, true
		}
	}
	return 0, false
}

// forgetFar has an endpoint not be in far, where it may be left from an error.
func (m *memory) forgetFar(id uint32) error {
	if _, ok := m.far[id]; !ok {
		return nil
	}
	if err := m.coll.Maps[bpf.SluiceMapFar].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	delete(m.far, id)
	return nil
}

// flipFar changes the record of an endpoint whose place another one has.
func (m *memory) flipFar(id, record uint32) error {
	if record == 0 {
		delete(m.recs, id)
		return m.forgetFar(id)
	}
	m.recs[id], m.far[id] = record, struct{}{}
	return m.coll.Maps[bpf.SluiceMapFar].Put(id, uint64(record))
}

// Switch implements Plane.
func (k *Kernel) Switch() (left []uint64, err error) {
	k.writes++
	if k.next == nil {
		return nil, nil
	}
	if err := k.moveNames(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.renew()) }()
	if err := k.judgeBy(k.next.coll.Programs, len(k.links)+len(k.stack) > 0); err != nil {
		return nil, err
	}
	for id, h := range k.links { // also where another mode is attached still
		if err := h.update(k.next.coll.Programs); err != nil {
			return nil, fmt.Errorf("interface %d: %w", id, err)
		}
	}
	for _, u := range k.uplinks {
		if err := u.update(k.next.coll.Programs); err != nil {
			return nil, fmt.Errorf("uplink: %w", err)
		}
	}
	old := k.swap()
	if old == k.force { // which was blank
		k.blank = false
		return nil, k.pinMemory()
	}
	left = old.hits(0, uint32(old.slots))
	if k.options.KeepSpare {
		old, k.spare = k.spare, old
	}
	return left, errors.Join(k.pinMemory(), old.close())
}

// renew has packets ask lists again when nobody runs the programs of another memory any more, who
// could note what its lists say.
func (k *Kernel) renew() error {
	var err error
	if k.options.Mode != ModeNone { // else none is running, see swap
		err = k.Grace()
	}
	k.history.changed()
	return err
}

// swap puts the prepared memory in force and returns the other, when nobody runs it.
func (k *Kernel) swap() *memory {
	k.running.Lock()
	defer k.running.Unlock()
	old := k.force
	k.force, k.next = k.next, nil
	k.history.setTurn(k.force.turn)
	return old
}

// Grace implements Plane: the kernel does not return from this update before all programs
// have ended that ran when it began.
func (k *Kernel) Grace() error {
	if err := k.outer.Put(uint32(0), k.inner); err != nil {
		return fmt.Errorf("wait for packets on their way: %w", err)
	}
	return nil
}

// Word implements Plane.
func (k *Kernel) Word(i uint32) uint32 { return atomic.LoadUint32(k.force.word(i)) }

// Record implements Plane.
func (k *Kernel) Record(id uint32) uint32 { return k.force.recs[id] }
