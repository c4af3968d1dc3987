package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	gomaps "maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// DefaultPinPath is where links and maps are pinned.
const DefaultPinPath = "/sys/fs/bpf/sluice"

// What the program does beside policy; bits of its conf.
const (
	confNeighbours = 1 << iota
	confErrors
	confSpoof
	confClosed
)

// KernelOptions say how the kernel enforces.
type KernelOptions struct {
	Log  *slog.Logger // nil discards
	Mode Mode
	// PinPath is a folder of a bpf file system. What is pinned there goes on when the process
	// ends, and is taken over by the next. Empty: nothing is pinned.
	PinPath string
	Infra   renderer.Infra

	AnySource   bool // pods may send from addresses that are not theirs
	UnknownPass bool // interfaces that are attached and not known let packets pass
	Flows       int  // entries of the table of flows, per family; zero: 131072

	// KeepSpare keeps the memory that was in force before, so that the next one need not be
	// loaded. It is for those that replace memories often.
	KeepSpare bool
	// Lines and Slots are what a memory has at least.
	Lines, Slots int

	// Uplinks are interfaces at which packets to pods are dropped early.
	Uplinks []uint32
	// PodNamespace opens the network namespace of a pod, in which its end of the pair has
	// the index that is returned. Only ModeXDPPod asks.
	PodNamespace func(e compile.Endpoint) (ns *os.File, index uint32, err error)
}

// Kernel is a Plane in the kernel.
type Kernel struct {
	options KernelOptions
	log     *slog.Logger
	state   map[string]*ebpf.Map // of flows: outlives memories
	running sync.RWMutex         // read while a program is run; its memory is not closed then
	force   *memory
	next    *memory
	spare   *memory // was in force before
	mark    *ebpf.Map
	links   map[uint32]*hooks
	uplinks map[uint32]attachment
	blank   bool      // nothing was written to force, and nobody runs it
	noTCX   bool      // in the kernel, as far as is known
	outer   *ebpf.Map // whose updates wait for all packets on their way
	inner   *ebpf.Map
	told    uint32       // events of a second that are told of
	since   atomic.Int64 // sinceBoot when that began
}

// memory is one set of programs with its maps.
type memory struct {
	coll  *ebpf.Collection
	bytes []byte // of mem, mapped
	ends  []byte // of ends, mapped
	slots int
	far   map[uint32]uint32 // records of endpoints that are not in ends
	ids   map[uint32]uint32 // by place: the endpoint that is in ends
	recs  map[uint32]uint32 // records by endpoint
}

// minLines is what a memory has at least. With very few the verifier proves that look-ups
// fail, and that loops over what they return do not end.
const minLines = 1024

// firstLines and firstSlots are what the first memory has, so that it is large enough for most
// nodes to begin with: 1 MiB.
const (
	firstLines = 1 << 14
	firstSlots = 256
)

// stateMaps are shared by all memories, and pinned.
var stateMaps = []string{bpf.SluiceMapFlows4, bpf.SluiceMapFlows6, bpf.SluiceMapFragments, bpf.SluiceMapEvents, bpf.SluiceMapListener, bpf.SluiceMapReasons}

// NewKernel takes over what is pinned, or begins with nothing. Nothing is enforced by it.
func NewKernel(o KernelOptions) (*Kernel, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Flows == 0 {
		o.Flows = 131072
	}
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if !slices.Contains(Modes, o.Mode) {
		return nil, fmt.Errorf("%q is no mode of attachment", o.Mode)
	}
	k := &Kernel{options: o, log: o.Log, state: map[string]*ebpf.Map{}, links: map[uint32]*hooks{}, uplinks: map[uint32]attachment{}}
	if err := k.open(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kernel) open() error {
	if k.options.PinPath != "" {
		if err := os.MkdirAll(k.options.PinPath, 0o700); err != nil {
			return fmt.Errorf("folder for pins: %w", err)
		}
		if err := isBPF(k.options.PinPath); err != nil {
			return err
		}
	}
	spec, err := bpf.LoadSluice()
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	for _, name := range stateMaps {
		m := spec.Maps[name].Copy()
		if m.Type == ebpf.LRUHash && name != bpf.SluiceMapFragments {
			m.MaxEntries = uint32(k.options.Flows)
		}
		if k.state[name], err = k.stateMap(m); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	if k.inner, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
		return fmt.Errorf("map for grace periods: %w", err)
	}
	k.outer, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "sluice_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: &ebpf.MapSpec{Name: "sluice_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1},
	})
	if err != nil {
		return fmt.Errorf("map for grace periods: %w", err)
	}
	if err := k.Tell(Telling{}); err != nil { // a process that was killed may have listened
		return err
	}
	return k.adopt()
}

// isBPF checks that a folder can have pins.
func isBPF(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return fmt.Errorf("folder for pins %s: %w", path, err)
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("folder for pins %s: it is in no bpf file system; mount one, as by mount -t bpf bpf /sys/fs/bpf", path)
	}
	return nil
}

// stateMap opens a pinned map, or makes it. One that was made for other sizes is replaced.
func (k *Kernel) stateMap(m *ebpf.MapSpec) (*ebpf.Map, error) {
	if k.options.PinPath == "" {
		return ebpf.NewMap(m)
	}
	path := filepath.Join(k.options.PinPath, m.Name)
	if old, err := ebpf.LoadPinnedMap(path, nil); err == nil {
		if m.Compatible(old) == nil {
			return old, nil
		}
		k.log.Warn("a table begins anew, its size or layout is another one now", "map", m.Name)
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

func (k *Kernel) conf() (c uint32) {
	for bit, on := range map[uint32]bool{
		confNeighbours: !k.options.Infra.NoNeighbours, confErrors: !k.options.Infra.NoErrors, confSpoof: k.options.AnySource,
		confClosed: !k.options.UnknownPass,
	} {
		if on {
			c |= bit
		}
	}
	return c
}

// load makes a memory.
func (k *Kernel) load(lines, slots int) (*memory, error) { return k.loadWith(lines, slots, nil) }

// loadWith makes programs for the maps of a memory that there is.
func (k *Kernel) loadWith(lines, slots int, maps map[string]*ebpf.Map) (*memory, error) {
	spec, err := bpf.LoadSluice()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	slots = max(slots, k.options.Slots, 2)
	spec.Maps[bpf.SluiceMapMem].MaxEntries = uint32(max(lines, k.options.Lines, minLines))
	spec.Maps[bpf.SluiceMapHits].MaxEntries = uint32(slots)
	for _, name := range stateMaps {
		spec.Maps[name].MaxEntries = k.state[name].MaxEntries()
	}
	hz, shift, err := ticks()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(spec.Variables[bpf.SluiceVarConf].Set(k.conf()), spec.Variables[bpf.SluiceVarTicksPerSecond].Set(hz), spec.Variables[bpf.SluiceVarTickShift].Set(shift)); err != nil {
		return nil, fmt.Errorf("configure the program: %w", err)
	}
	replace := gomaps.Clone(k.state)
	gomaps.Copy(replace, maps)
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	m := &memory{coll: coll, slots: slots, far: map[uint32]uint32{}, ids: map[uint32]uint32{}, recs: map[uint32]uint32{}}
	if m.bytes, err = mapped(coll.Maps[bpf.SluiceMapMem]); err == nil {
		m.ends, err = mapped(coll.Maps[bpf.SluiceMapEnds])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map memory: %w", err), m.close())
	}
	return m, nil
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

func (m *memory) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, b := range [][]byte{m.bytes, m.ends} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
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
	return len(m.bytes) / (4 * compile.LineWords), m.slots
}

// Prepare implements Plane.
func (k *Kernel) Prepare(lines, slots int) error {
	var err error
	if k.options.KeepSpare && k.spare == nil {
		k.next, k.spare = nil, k.next
	}
	if k.next != k.force {
		err = k.next.close()
	}
	if k.next = nil; err != nil {
		return err
	}
	if k.blank && len(k.links)+len(k.uplinks) == 0 && k.force.holds(lines, slots) { // nobody would see a difference
		k.next = k.force
		return k.force.clear()
	}
	k.blank = false
	if k.next, err = k.takeSpare(lines, slots); err == nil && k.next == nil {
		k.next, err = k.load(lines, slots)
	}
	return err
}

// takeSpare returns the spare memory, with nothing in it, if it is large enough.
func (k *Kernel) takeSpare(lines, slots int) (*memory, error) {
	m := k.spare
	if m == nil || !m.holds(lines, slots) {
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
	return len(m.bytes) >= lines*4*compile.LineWords && m.slots >= slots
}

// clear makes a memory in which nothing is of one that nobody runs.
func (m *memory) clear() error {
	clear(m.bytes)
	clear(m.ends)
	for id := range m.recs {
		if m.ids[id%places] != id {
			if err := m.flipFar(id, 0); err != nil {
				return err
			}
		}
	}
	clear(m.recs)
	clear(m.ids)
	return m.clearHits()
}

// Write implements Plane.
func (k *Kernel) Write(line uint32, content []compile.Line) error {
	if len(content) == 0 {
		return nil
	}
	const size = 4 * compile.LineWords
	from := unsafe.Slice((*byte)(unsafe.Pointer(&content[0])), len(content)*size)
	to := k.written().bytes[uint64(line)*size:]
	if len(to) < len(from) {
		return fmt.Errorf("memory has no line %d", int(line)+len(content))
	}
	copy(to, from)
	return nil
}

// Store implements Plane.
func (k *Kernel) Store(word, value uint32) error {
	atomic.StoreUint32(k.written().word(word), value)
	return nil
}

// places of endpoints in ends.
const places = 16384

// Flip implements Plane.
func (k *Kernel) Flip(id, record uint32) error {
	m := k.written()
	place := id % places
	owner, taken := m.ids[place]
	switch {
	case taken && owner != id:
		return m.flipFar(id, record)
	case record == 0:
		delete(m.ids, place)
		delete(m.recs, id)
		atomic.StoreUint64(m.end(place), 0)
		return nil
	}
	m.ids[place], m.recs[id] = id, record
	atomic.StoreUint64(m.end(place), uint64(record))
	return nil
}

// flipFar changes the record of an endpoint whose place another one has.
func (m *memory) flipFar(id, record uint32) error {
	far := m.coll.Maps[bpf.SluiceMapFar]
	if record == 0 {
		delete(m.recs, id)
		if err := far.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	}
	m.recs[id] = record
	return far.Put(id, uint64(record))
}

// Switch implements Plane.
func (k *Kernel) Switch() (left []uint64, err error) {
	if k.next == nil {
		return nil, nil
	}
	if err := k.moveNames(); err != nil {
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
	if left, err = old.hits(0, uint32(old.slots)); err != nil {
		k.log.Warn("what rules decided is not known", "error", err)
	}
	if k.options.KeepSpare {
		old, k.spare = k.spare, old
	}
	return left, errors.Join(k.pinMemory(), old.close())
}

// swap puts the prepared memory in force and returns the other, when nobody runs it.
func (k *Kernel) swap() *memory {
	k.running.Lock()
	defer k.running.Unlock()
	old := k.force
	k.force, k.next = k.next, nil
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

// Close ends what is not pinned. What is goes on.
func (k *Kernel) Close() error {
	var errs []error
	for _, h := range k.links {
		errs = append(errs, h.close())
	}
	for _, u := range k.uplinks {
		errs = append(errs, u.close())
	}
	if k.next != k.force {
		errs = append(errs, k.next.close())
	}
	errs = append(errs, k.force.close(), k.spare.close())
	for _, m := range k.state {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	for _, m := range []*ebpf.Map{k.outer, k.inner, k.mark} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Permits implements Plane.
func (k *Kernel) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	if k.links[id] == nil {
		return true, nil
	}
	name := bpf.SluiceProgAskTo
	if dir == compile.FromPod {
		name = bpf.SluiceProgAskFrom
	}
	return k.run(name, id, Frame(f, false))
}

// Probe says what becomes of a packet that an endpoint sends or receives, and leaves the
// state that the packet would leave.
func (k *Kernel) Probe(id uint32, dir compile.Direction, frame []byte) (bool, error) {
	name := bpf.SluiceProgProbeTo
	if dir == compile.FromPod {
		name = bpf.SluiceProgProbeFrom
	}
	return k.run(name, id, frame)
}

// run has the kernel run a program on a packet.
func (k *Kernel) run(name string, id uint32, frame []byte) (bool, error) {
	ctx := struct{ Len, PktType, Mark uint32 }{Mark: id}
	var full [192]byte // as large as what the kernel takes; zero behind
	*(*struct{ Len, PktType, Mark uint32 })(unsafe.Pointer(&full)) = ctx
	k.running.RLock()
	defer k.running.RUnlock()
	got, err := k.force.coll.Programs[name].Run(&ebpf.RunOptions{Data: frame, Context: full})
	if err != nil {
		return false, fmt.Errorf("run %s for endpoint %s: %w", name, strconv.FormatUint(uint64(id), 10), err)
	}
	return int32(got) == -1, nil
}

// FlowCount returns how many flows the kernel has evidence of.
func (k *Kernel) FlowCount() (n int, err error) {
	var value bpf.SluiceFlow
	var key4 bpf.SluiceKey4
	it := k.state[bpf.SluiceMapFlows4].Iterate()
	for it.Next(&key4, &value) {
		n++
	}
	var key6 [28]byte
	it6 := k.state[bpf.SluiceMapFlows6].Iterate()
	for it6.Next(&key6, &value) {
		n++
	}
	return n, errors.Join(it.Err(), it6.Err())
}
