package xdp

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	gomaps "maps"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// stateMaps are shared by all memories, and pinned.
var stateMaps = []string{bpf.SluiceMapGateways, bpf.SluiceMapFlows, bpf.SluiceMapLately, bpf.SluiceMapCrowds, bpf.SluiceMapChanges, bpf.SluiceMapFragments, bpf.SluiceMapEvents, bpf.SluiceMapListener, bpf.SluiceMapReasons, bpf.SluiceMapShares, bpf.SluiceMapLimits}

// isBPF checks that a folder can have pins.
func isBPF(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is in no bpf file system", path)
	}
	return nil
}

// stateMap opens a pinned map, or makes it. One that was made for other sizes is replaced.
func (k *Kernel) stateMap(m *ebpf.MapSpec) (*ebpf.Map, error) {
	path := k.pinOf(m.Name)
	m = m.Copy()
	m.Name = kernelName(m.Name)
	if k.options.PinPath == "" {
		return ebpf.NewMap(m)
	}
	if old, err := ebpf.LoadPinnedMap(path, nil); err == nil {
		if m.Compatible(old) == nil {
			return old, nil
		}
		k.log.Warn("a table begins anew, its size or layout is another one now", "pin", path)
		if err := errors.Join(old.Unpin(), old.Close()); err != nil {
			return nil, err
		}
	}
	fresh, err := ebpf.NewMap(m)
	if err != nil {
		return nil, err
	}
	return fresh, fresh.Pin(path)
}

// kernelName is the name of a map for the kernel, which has no room for more than 15 bytes.
func kernelName(name string) string { return kernelNames + strings.TrimPrefix(name, ".data.") }

// What the program does beside policy; bits of its conf.
const (
	confNeighbours = 1 << iota
	confErrors
	confSpoof
	confClosed
	confNonIP
	confTunnels
)

func (k *Kernel) conf() (c uint32) {
	for bit, on := range map[uint32]bool{
		confNeighbours: !k.options.Infra.NoNeighbours, confErrors: !k.options.Infra.NoErrors, confSpoof: k.options.AnySource,
		confClosed: true, confNonIP: k.options.NonIP, confTunnels: k.options.PodTunnels,
	} {
		if on {
			c |= bit
		}
	}
	return c
}

// crowd is as many flows as are many for the program.
func (k *Kernel) crowd() uint32 { return uint32(max(k.options.Crowd, 0)) }

// loads identifies the programs that this process loads, with all that they are configured by and what
// they share. What runs of another process may be of another version of them, or of other settings.
func (k *Kernel) loads() (out [16]byte, err error) {
	hz, shift, err := ticks()
	if err != nil {
		return out, err
	}
	h := sha256.New()
	h.Write(bpf.Object())
	_, err = fmt.Fprint(h, k.conf(), hz, shift, k.state[bpf.SluiceMapFlows].ValueSize(), k.history.seed(), k.crowd(), k.senders.now(), k.behind(), k.tags(), k.options.TunnelPorts)
	copy(out[:], h.Sum(nil))
	return out, err
}

// load makes a memory.
func (k *Kernel) load(lines, slots int) (*memory, error) { return k.loadWith(lines, slots, nil) }

// loadWith makes programs for the maps of a memory that there is.
func (k *Kernel) loadWith(lines, slots int, maps map[string]*ebpf.Map) (*memory, error) {
	slots = max(slots, k.options.Slots, 2)
	turn := k.history.turn()
	if k.force != nil { // else it is of what is in force
		turn = 1 - turn
	}
	senders := k.senders.now()
	spec, err := k.spec(max(lines, k.options.Lines, minLines), slots, turn, senders)
	if err != nil {
		return nil, err
	}
	needed := k.needed()
	gomaps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(needed, name) })
	coll, err := k.collection(spec, maps)
	if err != nil {
		return nil, err
	}
	m := &memory{coll: coll, asked: map[string]*ebpf.Program{}, slots: slots, turn: turn, senders: senders, ids: map[uint32]uint32{}, recs: map[uint32]uint32{}, far: map[uint32]struct{}{}, names: map[netip.Addr]uint32{}}
	if m.bytes, err = mapped(coll.Maps[bpf.SluiceMapMem]); err == nil {
		m.ends, err = mapped(coll.Maps[bpf.SluiceMapEnds])
	}
	if err == nil {
		m.counted, err = mapped(coll.Maps[bpf.SluiceMapHits])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map memory: %w", err), m.close())
	}
	return m, nil
}

// spec returns the programs and maps for a memory, configured.
func (k *Kernel) spec(lines, slots int, turn uint32, layout layout) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadSluice()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	if err := k.size(spec, lines, slots); err != nil {
		return nil, err
	}
	hz, shift, err := ticks()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]uint32{
		bpf.SluiceVarSkbConnection: layout.connection, bpf.SluiceVarSkbTag: layout.tag, bpf.SluiceVarSkbLength: layout.length,
		bpf.SluiceVarSkbInterface: layout.by, bpf.SluiceVarConnectionSource: layout.source, bpf.SluiceVarConnectionStep: layout.step,
		bpf.SluiceVarBehind: bit(k.behind()), bpf.SluiceVarTags: bit(k.tags()),
		bpf.SluiceVarConf: k.conf(), bpf.SluiceVarTicksPerSecond: hz, bpf.SluiceVarTickShift: shift, bpf.SluiceVarMemoryTurn: turn,
		bpf.SluiceVarCrowdSize: k.crowd(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("configure the program: %s: %w", name, err)
		}
	}
	var ports [MaxTunnelPorts]uint32
	for i, port := range k.options.TunnelPorts {
		ports[i] = uint32(port)
	}
	return spec, errors.Join(configureFlows(spec, k.history.seed()), spec.Variables[bpf.SluiceVarTunnelPorts].Set(ports))
}

// collection loads what a spec has, over the maps that there are.
func (k *Kernel) collection(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error) {
	for name, p := range spec.Programs {
		p.Name = kernelNames + name
	}
	replace := gomaps.Clone(k.state)
	gomaps.Copy(replace, maps)
	for name, m := range spec.Maps {
		switch {
		case !strings.HasPrefix(name, "."):
			m.Name = kernelName(name)
		case replace[name] == nil && slices.Contains(memoryMaps, name): // a section is known by its name, and its map by another one
			own, err := named(m)
			if err != nil {
				return nil, fmt.Errorf("map %s: %w", name, err)
			}
			defer func() { _ = own.Close() }() // the collection has its own reference
			replace[name] = own
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	return coll, nil
}

// named makes the map of a section with a name of ours.
func named(m *ebpf.MapSpec) (*ebpf.Map, error) {
	m = m.Copy()
	m.Name = kernelName(m.Name)
	return ebpf.NewMap(m)
}

// needed are the programs that every memory is loaded with: of the mode, of uplinks, and of what is attached
// already, maybe by another mode. To check a program takes the kernel longer than all else of a load, so others
// are loaded when they are asked first.
func (k *Kernel) needed() []string {
	out := k.programs()
	if k.behind() {
		out = append(out, bpf.SluiceProgStack4, bpf.SluiceProgStack6)
	}
	if len(k.options.Uplinks) > 0 {
		out = append(out, bpf.SluiceProgXdpUplink)
	}
	for _, h := range k.links {
		for _, a := range h.list {
			out = append(out, a.name())
		}
	}
	return out
}

// program returns a program of the memory in force, which is loaded if it is not yet. Many may ask
// at once.
func (k *Kernel) program(name string) (*ebpf.Program, error) {
	k.loading.Lock()
	defer k.loading.Unlock()
	m := k.force
	if p := cmp.Or(m.coll.Programs[name], m.asked[name]); p != nil {
		return p, nil
	}
	spec, err := k.spec(len(m.bytes)/bpf.LineBytes, m.slots, m.turn, m.senders)
	if err != nil {
		return nil, err
	}
	gomaps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	maps := map[string]*ebpf.Map{}
	for _, name := range memoryMaps {
		maps[name] = m.coll.Maps[name]
	}
	coll, err := k.collection(spec, maps)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	m.asked[name] = coll.DetachProgram(name)
	return m.asked[name], nil
}

// ticks returns how many ticks of the kernel a second has, and how many of them, as a power of two,
// are about a quarter of a second: the unit of the times in state.
func ticks() (hz, shift uint32, err error) {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, 0, fmt.Errorf("length of a tick: %w", err)
	}
	if n := tick.Nano(); n > 0 {
		hz = uint32((1e9 + n/2) / n)
	}
	if hz < 4 || hz > 10000 {
		return 0, 0, fmt.Errorf("a tick of the kernel is said to be %d ns", tick.Nano())
	}
	return hz, uint32(bits.Len32(hz/4) - 1), nil
}

// mapped maps the values of an array.
func mapped(m *ebpf.Map) ([]byte, error) {
	page := os.Getpagesize()
	size := int(m.MaxEntries()) * int(m.ValueSize())
	return unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
