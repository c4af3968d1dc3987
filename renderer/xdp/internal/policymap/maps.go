// Package policymap has the policy map that programs read: its lines, the endpoint table and the
// addresses of pods, and what its rules counted.
//
// A policy map is changed word by word while packets read it, or replaced: the next one is
// prepared, and switched to when it is complete. Package compile says what has to be written in
// which order.
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

// firstLines and firstSlots are what the first policy map has, so that it is large enough for most
// nodes to begin with: 1 MiB.
const (
	firstLines = 1 << 14
	firstSlots = 256
)

// Maps are the policy map in force, and the one that is prepared, if there is one: writes go there.
// It is used by one goroutine at a time, but for Hits and Program.
type Maps struct {
	loader  *loader.Loader
	folder  *pins.Folder
	history *connections.History
	grace   *Grace

	running  sync.RWMutex // read while a program is run, or what it counted is read; nothing is closed then
	inForce  *policyMap
	next     *policyMap
	spare    *policyMap // was in force before
	useSpare bool
	blank    bool // nothing was written to the one in force, and nobody runs it

	writes uint64 // so far
	seen   digest
}

// digest is what the policy map in force had in it when it was looked at last.
type digest struct {
	of     *policyMap
	writes uint64
	sum    uint32
}

// New returns no policy map yet: Adopt or Begin. With useSpare the one that was in force before is
// kept, so that the next one need not be loaded.
func New(l *loader.Loader, folder *pins.Folder, h *connections.History, g *Grace, useSpare bool) *Maps {
	return &Maps{loader: l, folder: folder, history: h, grace: g, useSpare: useSpare}
}

// Adopt takes over the policy map that another process left in force. Its programs are loaded anew,
// with some besides.
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
	lines := int(given[bpf.SluiceMapMem].ValueSize() / bpf.LineBytes)
	slots := int(given[bpf.SluiceMapHits].ValueSize()/bpf.HitBytes) / s.loader.CPUs()
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

// Begin makes the first policy map, which nobody runs.
func (s *Maps) Begin(programs []string) (err error) {
	s.blank = true
	s.inForce, err = newMap(s.loader, s.loader.SizeOf(firstLines, firstSlots, s.history.Parity()), programs, nil)
	return err
}

// Programs are those of the policy map in force.
func (s *Maps) Programs() map[string]*ebpf.Program { return s.inForce.coll.Programs }

// written is the policy map that steps go to.
func (s *Maps) written() *policyMap {
	if s.next != nil {
		return s.next
	}
	return s.inForce
}

// Size returns how many lines and counters the policy map has that is written.
func (s *Maps) Size() (lines, slots int) {
	m := s.written()
	return m.size.Lines, m.size.Slots
}

// Prepare makes an empty policy map, with some programs besides those of the mode. What was
// prepared before is dropped. With unseen no packet runs the one in force: then that is used, if
// nothing was written to it.
func (s *Maps) Prepare(lines, slots int, programs []string, unseen bool) error {
	err := s.dropNext()
	if err != nil {
		return err
	}
	if s.blank && unseen && s.inForce.holds(lines, slots) { // nobody would see a difference
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
	case next == s.inForce: // it was blank, and goes on
		return nil
	case s.useSpare && s.spare == nil:
		s.spare = next
		return nil
	}
	return next.close()
}

// takeSpare returns the spare policy map, emptied, if it is large enough.
func (s *Maps) takeSpare(lines, slots int) (*policyMap, error) {
	m := s.spare
	if m == nil || !m.holds(lines, slots) || m.size.Layout != s.loader.Layout() {
		return nil, nil
	}
	if s.loader.Runs() { // else packets run when they are asked about, one by one
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

// Write writes lines that nothing leads to.
func (s *Maps) Write(line uint32, content []compile.Line) error {
	s.writes++
	return s.written().write(line, content)
}

// Store changes a word in one step.
func (s *Maps) Store(word, value uint32) {
	s.writes++
	atomic.StoreUint32(s.written().word(word), value)
	s.history.Changed()
}

// Flip makes a record that of an endpoint; 0 for none.
func (s *Maps) Flip(id, record uint32) error {
	s.writes++
	defer s.history.Changed() // also when it is not known whether it failed
	return s.written().endpoints.flip(id, record, s.grace.Wait)
}

// Switch puts the prepared policy map in force, if there is one: run has all that is attached run
// its programs. It returns what the counters of the other one had reached, nil if that is not
// known.
func (s *Maps) Switch(run func(programs map[string]*ebpf.Program) error) (left []uint64, err error) {
	s.writes++
	if s.next == nil {
		return nil, nil
	}
	if err := s.inForce.addresses.copyTo(&s.next.addresses); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.renew()) }()
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

// renew has packets ask lists again when nobody runs the programs of another policy map any more,
// who could note what its lists say.
func (s *Maps) renew() (err error) {
	if s.loader.Runs() { // else none is running, see swap
		err = s.grace.Wait()
	}
	s.history.Changed()
	return err
}

// swap puts the prepared policy map in force and returns the other, when nobody runs it.
func (s *Maps) swap() *policyMap {
	s.running.Lock()
	defer s.running.Unlock()
	old := s.inForce
	s.inForce, s.next = s.next, nil
	s.history.SetParity(s.inForce.size.Parity)
	return old
}

// pin makes the policy map in force the one that a next process takes over.
func (s *Maps) pin() error {
	for _, name := range loader.MapNames {
		if err := s.folder.Replace(name, s.inForce.coll.Maps[name]); err != nil {
			return err
		}
	}
	return nil
}

// All are the maps that programs in force use, also those that all policy maps share, by their
// names.
func (s *Maps) All() map[string]*ebpf.Map { return s.inForce.coll.Maps }

// Name has the addresses of an endpoint lead to it, and no others.
func (s *Maps) Name(id uint32, ips []netip.Addr) error {
	err := s.inForce.addresses.remove(id)
	for _, ip := range ips {
		if err == nil {
			err = s.inForce.addresses.add(ip, id)
		}
	}
	return err
}

// Word reads the policy map in force.
func (s *Maps) Word(i uint32) uint32 { return atomic.LoadUint32(s.inForce.word(i)) }

// Record returns which record an endpoint has in the policy map in force.
func (s *Maps) Record(id uint32) uint32 { return s.inForce.endpoints.records[id] }

// Hits returns the packets that so many slots counted in the policy map in force. Any goroutine may
// call it; it fails when closed.
func (s *Maps) Hits(first, count uint32) ([]uint64, error) {
	s.running.RLock()
	defer s.running.RUnlock()
	if s.inForce.counters == nil {
		return nil, events.ErrClosed
	}
	slots := uint32(s.inForce.size.Slots)
	return s.inForce.counted(first, min(count, slots-min(first, slots))), nil
}

// Run has the kernel run a program of the policy map in force, which is loaded if it is not yet.
// Any goroutine may call it.
func (s *Maps) Run(name string, o *ebpf.RunOptions) (uint32, error) {
	s.running.RLock()
	defer s.running.RUnlock()
	program, err := s.inForce.program(s.loader, name)
	if err != nil {
		return 0, err
	}
	return program.Run(o)
}

// Layout is the layout of the kernel that the programs in force know.
func (s *Maps) Layout() loader.Layout { return s.inForce.size.Layout }

// Changed reports whether somebody else wrote to the policy map in force since it was called last.
func (s *Maps) Changed() bool {
	now, before := digest{s.inForce, s.writes, s.inForce.sum()}, s.seen
	s.seen = now
	return now.of == before.of && now.writes == before.writes && now.sum != before.sum
}

// Reset makes the policy map in force an empty one. With unseen, nobody runs it.
func (s *Maps) Reset(unseen bool) error {
	if err := s.dropNext(); err != nil {
		return err
	}
	s.blank = unseen
	s.writes++
	return s.inForce.clear()
}

// Close ends what is not pinned.
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
