package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/endpoints/gate"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// memoryMaps are the maps of one memory. The ones in force are pinned.
var memoryMaps = []string{bpf.SluiceMapMem, bpf.SluiceMapEnds, bpf.SluiceMapFar, bpf.SluiceMapNames, bpf.SluiceMapHits}

const markPin = "mark"

// pinOf returns where a map is pinned: names of pins have no dots.
func (k *Kernel) pinOf(name string) string {
	return filepath.Join(k.options.PinPath, strings.TrimPrefix(name, ".data."))
}

// adopt takes over the memory in force and the links of a process that has ended.
func (k *Kernel) adopt() error {
	var err error
	if k.mark, err = k.stateMap(&ebpf.MapSpec{Name: markPin, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(Mark{}) + len(k.version)), MaxEntries: 1}); err != nil {
		return fmt.Errorf("map %s: %w", markPin, err)
	}
	if k.options.PinPath != "" { // first, because memories have the programs of what is attached
		if err := errors.Join(k.adoptLinks(), k.adoptFilters(), k.adoptStack()); err != nil {
			return err
		}
	}
	if k.options.PinPath != "" && k.Mark() != (Mark{}) {
		if err := k.adoptMemory(); err != nil {
			k.log.Warn("what is in force is replaced, not taken over", "error", err)
			if err := k.SetMark(Mark{}); err != nil {
				return err
			}
		}
	}
	if k.force == nil {
		k.blank = true
		if k.force, err = k.load(max(k.options.Lines, firstLines), firstSlots); err != nil {
			return err
		}
	}
	return k.attachUplinks()
}

// adoptMemory opens the maps that are in force.
func (k *Kernel) adoptMemory() error {
	maps := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range maps {
			_ = m.Close() // the collection has its own references
		}
	}()
	for _, name := range memoryMaps {
		m, err := ebpf.LoadPinnedMap(k.pinOf(name), nil)
		if err != nil {
			return fmt.Errorf("pinned map %s: %w", name, err)
		}
		maps[name] = m
	}
	m, err := k.loadWith(int(maps[bpf.SluiceMapMem].ValueSize()/bpf.LineBytes), int(maps[bpf.SluiceMapHits].ValueSize()/bpf.HitBytes)/k.cpus, maps)
	if err != nil {
		return err
	}
	if err := errors.Join(m.learnEnds(), m.learnNames()); err != nil {
		return errors.Join(err, m.close())
	}
	k.force = m
	return nil
}

// learnEnds reads which endpoints a memory has.
func (m *memory) learnEnds() error {
	lines := uint64(len(m.bytes) / bpf.LineBytes)
	for place := range uint32(places) {
		record := atomic.LoadUint64(m.end(place))
		if record == 0 {
			continue
		}
		if record >= lines {
			return fmt.Errorf("the record of place %d is in line %d, and there are %d", place, record, lines)
		}
		id := *m.word(uint32(record)*compile.LineWords + compile.RecordID)
		m.ids[place], m.recs[id] = id, uint32(record)
	}
	var id uint32
	var record uint64
	it := m.coll.Maps[bpf.SluiceMapFar].Iterate()
	for it.Next(&id, &record) {
		m.far[id] = struct{}{}
		if m.ids[id%places] == id {
			continue // it came to its place, and the process ended before it was not in far any more
		}
		if record >= lines {
			return fmt.Errorf("the record of endpoint %d is in line %d, and there are %d", id, record, lines)
		}
		m.recs[id] = uint32(record)
	}
	return it.Err()
}

// pinMemory makes the memory in force the one that a next process takes over.
func (k *Kernel) pinMemory() error {
	if k.options.PinPath == "" {
		return nil
	}
	for _, name := range memoryMaps {
		path := k.pinOf(name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := k.force.coll.Maps[name].Pin(path); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// Mark implements Plane. What programs enforce that this process would not load is not known: they
// are replaced, and nothing of theirs is taken over.
func (k *Kernel) Mark() (m Mark) {
	b, _ := k.mark.LookupBytes(uint32(0))
	if mark, ok := bytes.CutSuffix(b, k.version[:]); ok && len(mark) == len(m) {
		copy(m[:], mark)
	}
	return m
}

// SetMark implements Plane.
func (k *Kernel) SetMark(m Mark) error { return k.mark.Put(uint32(0), append(m[:], k.version[:]...)) }

// ErrNoPins is returned by Cleanup for a folder that is not there.
var ErrNoPins = errors.New("there is no folder with pins")

// Cleanup removes everything that is pinned in a folder, gates too, and the filters of ours of all
// interfaces of the network namespace: what was enforced by them is not any more. It touches nothing that has
// not a name of ours, and nothing at all while a process owns the folder. It returns how many it
// removed; where the folder cannot have pins, these are filters.
func Cleanup(pinPath string) (removed int, err error) {
	k := &Kernel{options: KernelOptions{PinPath: pinPath}, links: map[uint32]*hooks{}, uplinks: map[uint32]attachment{}, stack: map[string][]judge{}}
	pins := isBPF(pinPath)
	switch {
	case errors.Is(pins, os.ErrNotExist):
		pins = fmt.Errorf("%w: %s", ErrNoPins, pinPath)
	case pins != nil:
		pins = fmt.Errorf("folder for pins: %w", pins)
	}
	if pins == nil {
		if k.pins, err = lockPins(pinPath, unix.LOCK_EX, false); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, k.pins.Close()) }()
		err = errors.Join(k.adoptLinks(), k.adoptStack())
	}
	if err := errors.Join(err, k.adoptFilters()); err != nil {
		return 0, errors.Join(pins, err)
	}
	removed, err = gate.New(pinPath).Cleanup()
	errs := []error{pins, err}
	for _, h := range k.links {
		removed += len(h.list)
		errs = append(errs, h.detach())
	}
	n, err := k.detachStack() // last: what is for the node is left to it
	removed, errs = removed+n, append(errs, err)
	if pins == nil {
		n, err := k.removePins()
		removed, errs = removed+n, append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removePins removes the pinned maps, and their folder if nothing else is in it.
func (k *Kernel) removePins() (removed int, err error) {
	var errs []error
	for _, names := range [][]string{memoryMaps, stateMaps, {markPin, ownerPin}} {
		for _, name := range names {
			switch err := os.Remove(k.pinOf(name)); {
			case err == nil:
				removed++
			case !errors.Is(err, os.ErrNotExist):
				errs = append(errs, err)
			}
		}
	}
	if err := os.Remove(k.options.PinPath); err != nil {
		errs = append(errs, fmt.Errorf("folder %s: %w", k.options.PinPath, err))
	}
	return removed, errors.Join(errs...)
}
