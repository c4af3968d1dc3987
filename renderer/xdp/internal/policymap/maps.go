// Package policymap manages the policy map that programs read: its lines, the endpoint table, the
// addresses of pods, and the counters of rules.
//
// A policy map is changed word by word while programs read it, or replaced by a new one that is put
// in force when it is complete. Package compile determines what must be written in which order.
package policymap

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/connections"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// firstLines and firstSlots are the size of the first policy map, 1 MiB, which is large enough for
// most nodes at the start.
const (
	firstLines = 1 << 14
	firstSlots = 256
)

// Maps has the policy map in force and the prepared one, if any. Writes go to the prepared one if
// there is one. One goroutine at a time may use it; Hits and Run are safe for concurrent use.
type Maps struct {
	loader  *loader.Loader
	folder  *pins.Folder
	history *connections.History
	grace   *Grace

	running  sync.RWMutex // read-locked while a program or its counters are used, so that they are not closed
	inForce  *policyMap
	next     *policyMap
	spare    *policyMap // the previous policy map
	useSpare bool
	blank    bool // nothing was written to the policy map in force, and no packet uses it

	writes uint64 // how many, so far
	seen   digest
}

// digest identifies the content of the policy map in force at the last call of Changed.
type digest struct {
	current *policyMap
	writes  uint64
	sum     uint32
}

// New returns Maps without a policy map: the caller must call Adopt or Begin. With useSpare the
// previous policy map is kept and reused, so that the next one need not be loaded.
func New(l *loader.Loader, folder *pins.Folder, h *connections.History, g *Grace, useSpare bool) *Maps {
	return &Maps{loader: l, folder: folder, history: h, grace: g, useSpare: useSpare}
}

// Adopt takes over the policy map that an earlier process left in force. It loads the programs of
// the mode anew, and the given ones.
func (s *Maps) Adopt(programs []string) error {
	given := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range given {
			_ = m.Close() // the collection has its own references
		}
	}()
	for _, name := range loader.MapNames {
		m, err := ebpf.LoadPinnedMap(s.folder.Path(name), nil)
		if err != nil {
			return fmt.Errorf("pinned map %s: %w", name, err)
		}
		given[name] = m
	}
	lines := int(given[bpf.SluiceMapPolicy].ValueSize() / bpf.LineBytes)
	slots := int(given[bpf.SluiceMapCounters].ValueSize()/bpf.CounterBytes) / s.loader.CPUs()
	m, err := newMap(s.loader, s.loader.SizeOf(lines, slots, s.history.Parity()), programs, given)
	if err != nil {
		return err
	}
	if err := m.read(); err != nil {
		return errors.Join(err, m.close())
	}
	s.inForce = m
	return nil
}

// Begin creates the first policy map, which no packet uses yet.
func (s *Maps) Begin(programs []string) (err error) {
	s.blank = true
	s.inForce, err = newMap(s.loader, s.loader.SizeOf(firstLines, firstSlots, s.history.Parity()), programs, nil)
	return err
}

// Programs returns the programs of the policy map in force.
func (s *Maps) Programs() map[string]*ebpf.Program { return s.inForce.coll.Programs }

// written is the policy map that steps go to.
func (s *Maps) written() *policyMap {
	if s.next != nil {
		return s.next
	}
	return s.inForce
}

// Size returns how many lines and counters the policy map has that writes go to.
func (s *Maps) Size() (lines, slots int) {
	m := s.written()
	return m.size.Lines, m.size.Slots
}

// Prepare creates an empty policy map, with the programs of the mode and the given ones. It
// discards one that was prepared before. With unseen, no packet uses the policy map in force;
// Prepare reuses that if nothing was written to it.
func (s *Maps) Prepare(lines, slots int, programs []string, unseen bool) error {
	err := s.dropNext()
	if err != nil {
		return err
	}
	if s.blank && unseen && s.inForce.holds(lines, slots) { // no packet can see a difference
		s.next = s.inForce
		s.writes++
		return s.inForce.clear()
	}
	s.blank = false
	if s.next, err = s.takeSpare(lines, slots); err == nil && s.next == nil {
		s.next, err = newMap(s.loader, s.loader.SizeOf(lines, slots, 1-s.history.Parity()), programs, nil)
	}
	return err
}

// dropNext discards the prepared policy map, if any.
func (s *Maps) dropNext() error {
	next := s.next
	s.next = nil
	switch {
	case next == s.inForce: // it was blank, and stays in force
		return nil
	case s.useSpare && s.spare == nil:
		s.spare = next
		return nil
	}
	return next.close()
}

// takeSpare empties and returns the spare policy map if it is large enough, else nil.
func (s *Maps) takeSpare(lines, slots int) (*policyMap, error) {
	m := s.spare
	if m == nil || !m.holds(lines, slots) || m.size.Layout != s.loader.Layout() {
		return nil, nil
	}
	if s.loader.Runs() { // else programs run for queries only, one at a time
		if err := s.grace.Wait(); err != nil {
			return nil, err
		}
	}
	if err := m.clear(); err != nil {
		return nil, err
	}
	s.spare = nil
	return m, nil
}

// Write writes lines that packets cannot reach.
func (s *Maps) Write(line uint32, content []compile.Line) error {
	s.writes++
	return s.written().write(line, content)
}

// Store changes a word atomically.
func (s *Maps) Store(word, value uint32) {
	s.writes++
	atomic.StoreUint32(s.written().word(word), value)
	s.history.Changed()
}

// Flip sets the record of an endpoint; 0 removes it.
func (s *Maps) Flip(id, record uint32) error {
	s.writes++
	defer s.history.Changed() // also after an error, when the record may have changed
	return s.written().endpoints.flip(id, record, s.grace.Wait)
}

// Switch puts the prepared policy map, if any, in force: run makes all attachments run its
// programs. It returns the last counters of the old policy map, nil if they are not known.
func (s *Maps) Switch(run func(programs map[string]*ebpf.Program) error) (left []uint64, err error) {
	s.writes++
	if s.next == nil {
		return nil, nil
	}
	if err := s.inForce.addresses.copyTo(&s.next.addresses); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.invalidate()) }()
	if err := run(s.next.coll.Programs); err != nil {
		return nil, err
	}
	old := s.swap()
	if old == s.inForce { // which was blank
		s.blank = false
		return nil, s.pin()
	}
	left = old.counted(0, uint32(old.size.Slots))
	if s.useSpare {
		old, s.spare = s.spare, old
	}
	return left, errors.Join(s.pin(), old.close())
}

// invalidate makes packets evaluate lists again. It first waits until no packet runs programs of
// another policy map, because these could still cache verdicts of its lists.
func (s *Maps) invalidate() (err error) {
	if s.loader.Runs() { // else no program is running, see swap
		err = s.grace.Wait()
	}
	s.history.Changed()
	return err
}

// swap puts the prepared policy map in force and returns the old one. It waits for running queries.
func (s *Maps) swap() *policyMap {
	s.running.Lock()
	defer s.running.Unlock()
	old := s.inForce
	s.inForce, s.next = s.next, nil
	s.history.SetParity(s.inForce.size.Parity)
	return old
}

// pin pins the policy map in force, so that the next process can adopt it.
func (s *Maps) pin() error {
	for _, name := range loader.MapNames {
		if err := s.folder.Replace(name, s.inForce.coll.Maps[name]); err != nil {
			return err
		}
	}
	return nil
}

// All returns the maps that the programs in force use, shared ones included, by name.
func (s *Maps) All() map[string]*ebpf.Map { return s.inForce.coll.Maps }

// Name sets the addresses of an endpoint.
func (s *Maps) Name(id uint32, ips []netip.Addr) error {
	err := s.inForce.addresses.remove(id)
	for _, ip := range ips {
		if err == nil {
			err = s.inForce.addresses.add(ip, id)
		}
	}
	return err
}

// Word returns a word of the policy map in force.
func (s *Maps) Word(i uint32) uint32 { return atomic.LoadUint32(s.inForce.word(i)) }

// Record returns the record of an endpoint in the policy map in force.
func (s *Maps) Record(id uint32) uint32 { return s.inForce.endpoints.records[id] }

// Stored returns the record that packets of an endpoint are judged by, as it is read from the
// tables, which other processes can write. Record has what was written there.
func (s *Maps) Stored(id uint32) (uint64, error) { return s.inForce.endpoints.stored(id) }

// Hits returns the packet counters of count slots of the policy map in force, beginning at first.
// It is safe for concurrent use, and returns events.ErrClosed after Close.
func (s *Maps) Hits(first, count uint32) ([]uint64, error) {
	s.running.RLock()
	defer s.running.RUnlock()
	if s.inForce.counters == nil {
		return nil, events.ErrClosed
	}
	slots := uint32(s.inForce.size.Slots)
	return s.inForce.counted(first, min(count, slots-min(first, slots))), nil
}

// Run runs a program of the policy map in force, and loads it on first use. It is safe for
// concurrent use.
func (s *Maps) Run(name string, o *ebpf.RunOptions) (uint32, error) {
	s.running.RLock()
	defer s.running.RUnlock()
	program, err := s.inForce.program(s.loader, name)
	if err != nil {
		return 0, err
	}
	return program.Run(o)
}

// Layout returns the kernel layout with which the programs in force were loaded.
func (s *Maps) Layout() loader.Layout { return s.inForce.size.Layout }

// Changed reports whether another process wrote to the policy map in force since the last call.
func (s *Maps) Changed() bool {
	now, before := digest{s.inForce, s.writes, s.inForce.sum()}, s.seen
	s.seen = now
	return now.current == before.current && now.writes == before.writes && now.sum != before.sum
}

// Reset empties the policy map in force. With unseen, no packet uses it.
func (s *Maps) Reset(unseen bool) error {
	if err := s.dropNext(); err != nil {
		return err
	}
	s.blank = unseen
	s.writes++
	return s.inForce.clear()
}

// Close closes all policy maps. Pinned ones stay in force.
func (s *Maps) Close() error {
	if s == nil {
		return nil
	}
	s.running.Lock()
	defer s.running.Unlock()
	var next error
	if s.next != s.inForce {
		next = s.next.close()
	}
	return errors.Join(next, s.inForce.close(), s.spare.close())
}
