// Package loader configures the programs of package bpf and loads them, with the maps that they
// have.
//
// A kernel that cannot do something is found out here: how large maps may be, and where the kernel
// has what it knows of a packet. The rest of the renderer asks the Loader.
package loader

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// MapNames are the maps of one policy map. The others are shared by all, and outlive them.
var MapNames = []string{bpf.SluiceMapMem, bpf.SluiceMapEnds, bpf.SluiceMapFar, bpf.SluiceMapNames, bpf.SluiceMapHits}

// SharedNames are the maps that all policy maps share.
var SharedNames = []string{bpf.SluiceMapGateways, bpf.SluiceMapFlows, bpf.SluiceMapLately, bpf.SluiceMapCrowds, bpf.SluiceMapChanges, bpf.SluiceMapFragments, bpf.SluiceMapEvents, bpf.SluiceMapListener, bpf.SluiceMapReasons, bpf.SluiceMapShares, bpf.SluiceMapLimits}

// MaxTunnelPorts is how many ports of tunnels a program knows.
const MaxTunnelPorts = 8

// Config is what programs are configured by, beside policy.
type Config struct {
	Log                          *slog.Logger
	Mode                         Mode
	Infra                        renderer.Infra
	AnySource, NonIP, PodTunnels bool     // what pods may send
	TunnelPorts                  []uint16 // MaxTunnelPorts at most
	Flows, FlowCacheThreshold    int
	MaxBytes                     int // of a map; zero, and more than that: what the kernel can
	Lines, Slots                 int // of a policy map, at least
	Uplinks                      bool
}

// Loader loads programs. Its methods but Load and Program are for one goroutine.
type Loader struct {
	config  Config
	limits  limits
	layouts *Tracker
	shared  map[string]*ebpf.Map
	seed    uint64
	version [16]byte
}

// New finds out what the kernel can.
func New(c Config, layouts *Tracker) (*Loader, error) {
	limits, err := measure(c.MaxBytes)
	if err != nil {
		return nil, err
	}
	if c.Flows > limits.flows {
		c.Log.Warn("the table of flows is smaller than it should be: the kernel has no larger values", "flows", limits.flows, "wanted", c.Flows)
	} else {
		limits.flows = c.Flows
	}
	return &Loader{config: c, limits: limits, layouts: layouts}, nil
}

// SharedSpecs returns what the shared maps are made by.
func (l *Loader) SharedSpecs() (map[string]*ebpf.MapSpec, error) {
	spec, err := bpf.LoadSluice()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	if err := l.limits.apply(spec, minLines, 0); err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !slices.Contains(SharedNames, name) })
	return spec.Maps, nil
}

// Share has programs use the shared maps, with the seed of the connection table.
func (l *Loader) Share(shared map[string]*ebpf.Map, seed uint64) error {
	l.shared, l.seed = shared, seed
	return l.identify()
}

// Version identifies the programs that this process loads, with all that they are configured by and
// what they share. What runs of another process may be of another version of them, or of other
// settings.
func (l *Loader) Version() [16]byte { return l.version }

func (l *Loader) identify() error {
	hz, shift, err := Ticks()
	if err != nil {
		return err
	}
	h := sha256.New()
	h.Write(bpf.Object())
	_, err = fmt.Fprint(h, l.conf(), hz, shift, l.shared[bpf.SluiceMapFlows].ValueSize(), l.seed, l.threshold(), l.layouts.Now(), l.Behind(), l.config.Mode.tags(), l.config.TunnelPorts)
	copy(l.version[:], h.Sum(nil))
	return err
}

// Limits returns how many lines and counters a policy map may have. Counters are those of all
// processors together.
func (l *Loader) Limits() (lines, slots int) { return l.limits.lines(), l.limits.slots() }

// CPUs is how many processors there may be.
func (l *Loader) CPUs() int { return l.limits.cpus }

// Runs reports whether packets run programs at any time.
func (l *Loader) Runs() bool { return l.config.Mode.Runs() }

// Layout is what is known of the kernel now.
func (l *Loader) Layout() Layout { return l.layouts.Now() }

// Renew reports whether programs of a layout are to be loaded anew, because more is known of the
// kernel since.
func (l *Loader) Renew(than Layout) (bool, error) {
	if l.layouts.Again() == than {
		return false, nil
	}
	l.config.Log.Info("the kernel tracks connections now, so it is known who sends what has an address of the node")
	return true, l.identify()
}

// Behind reports whether what pods send to the node is judged in its stack, behind the translation
// of services.
func (l *Loader) Behind() bool {
	if !l.config.Mode.Runs() || l.config.AnySource || !hasStack() {
		return false
	}
	known := l.layouts.Now()
	return known.tag != 0 && known.length != 0 && known.by != 0
}

// Size is how large a policy map is, and what its programs are configured by that may be otherwise
// for the next.
type Size struct {
	Lines, Slots int
	Parity       uint32 // policy maps that follow each other have 0 and 1 in turn
	Layout       Layout
}

// SizeOf returns the size of a policy map that has so many lines and counters, or more.
func (l *Loader) SizeOf(lines, slots int, parity uint32) Size {
	return Size{max(lines, l.config.Lines, minLines), max(slots, l.config.Slots, 2), parity, l.layouts.Now()}
}

// Load loads the programs that a policy map needs: those of the mode, those of uplinks, and some
// others. To check a program takes the kernel longer than all else of a load, so others are loaded
// when they are asked first: see Program. Maps that are not given are made.
func (l *Loader) Load(s Size, others []string, given map[string]*ebpf.Map) (*ebpf.Collection, error) {
	needed := append(l.config.Mode.Programs(), others...)
	if l.Behind() {
		needed = append(needed, bpf.SluiceProgStack4, bpf.SluiceProgStack6)
	}
	if l.config.Uplinks {
		needed = append(needed, bpf.SluiceProgXdpUplink)
	}
	return l.collection(s, needed, given)
}

// Program loads one program over the maps of a policy map. Any goroutine may call it.
func (l *Loader) Program(name string, s Size, given map[string]*ebpf.Map) (*ebpf.Program, error) {
	coll, err := l.collection(s, []string{name}, given)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}

// collection loads some programs, over the maps that there are.
func (l *Loader) collection(s Size, programs []string, given map[string]*ebpf.Map) (*ebpf.Collection, error) {
	spec, err := l.spec(s)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
	for name, p := range spec.Programs {
		p.Name = bpf.KernelNames + name
	}
	replace := maps.Clone(l.shared)
	maps.Copy(replace, given)
	for name, m := range spec.Maps {
		switch {
		case !strings.HasPrefix(name, "."):
			m.Name = bpf.KernelName(name)
		case replace[name] == nil && slices.Contains(MapNames, name): // a section is known by its name, and its map by another one
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
	m.Name = bpf.KernelName(m.Name)
	return ebpf.NewMap(m)
}

// spec returns the programs and maps for a policy map, configured.
func (l *Loader) spec(s Size) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadSluice()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	if err := l.limits.apply(spec, s.Lines, s.Slots); err != nil {
		return nil, err
	}
	hz, shift, err := Ticks()
	if err != nil {
		return nil, err
	}
	var ports [MaxTunnelPorts]uint32
	for i, port := range l.config.TunnelPorts {
		ports[i] = uint32(port)
	}
	for name, value := range map[string]any{
		bpf.SluiceVarSkbConnection: s.Layout.Connection, bpf.SluiceVarSkbTag: s.Layout.tag, bpf.SluiceVarSkbLength: s.Layout.length,
		bpf.SluiceVarSkbInterface: s.Layout.by, bpf.SluiceVarConnectionSource: s.Layout.source, bpf.SluiceVarConnectionStep: s.Layout.step,
		bpf.SluiceVarBehind: bit(l.Behind()), bpf.SluiceVarTags: bit(l.config.Mode.tags()),
		bpf.SluiceVarConf: l.conf(), bpf.SluiceVarTicksPerSecond: hz, bpf.SluiceVarTickShift: shift, bpf.SluiceVarMemoryTurn: s.Parity,
		bpf.SluiceVarCrowdSize: l.threshold(), bpf.SluiceVarFlowSeed: l.seed, bpf.SluiceVarReorders: bit(runtime.GOARCH != "amd64"), // there loads and stores are in order
		bpf.SluiceVarTunnelPorts: ports,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("configure the program: %s: %w", name, err)
		}
	}
	return spec, nil
}

// What the program does beside policy; bits of its conf.
const (
	confNeighbours = 1 << iota
	confErrors
	confSpoof
	confClosed
	confNonIP
	confTunnels
)

func (l *Loader) conf() (c uint32) {
	for flag, on := range map[uint32]bool{
		confNeighbours: !l.config.Infra.NoNeighbours, confErrors: !l.config.Infra.NoErrors, confSpoof: l.config.AnySource,
		confClosed: true, confNonIP: l.config.NonIP, confTunnels: l.config.PodTunnels,
	} {
		if on {
			c |= flag
		}
	}
	return c
}

// threshold is how many flows that go on are so many that the program asks its flow cache first.
func (l *Loader) threshold() uint32 { return uint32(max(l.config.FlowCacheThreshold, 0)) }

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Ticks returns how many ticks of the kernel a second has, and how many of them, as a power of two,
// are about a quarter of a second: the unit of the times in state.
func Ticks() (hz, shift uint32, err error) {
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
