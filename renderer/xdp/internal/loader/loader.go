// Package loader configures the programs of package bpf and loads them with their maps.
//
// It detects the features of the kernel: the limits of map sizes, and the layout of its structs.
// The rest of the renderer asks the Loader for these.
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

// MapNames are the maps of one policy map. All other maps are shared by all policy maps, and
// outlive them.
var MapNames = []string{bpf.SluiceMapPolicy, bpf.SluiceMapEndpoints, bpf.SluiceMapEpover, bpf.SluiceMapAddrs, bpf.SluiceMapCounters}

// SharedNames are the maps that all policy maps share.
var SharedNames = []string{bpf.SluiceMapGateways, bpf.SluiceMapConns, bpf.SluiceMapRecent, bpf.SluiceMapActivity, bpf.SluiceMapChanges, bpf.SluiceMapFrags, bpf.SluiceMapEvents, bpf.SluiceMapEventFilter, bpf.SluiceMapDrops, bpf.SluiceMapShares, bpf.SluiceMapLimits}

// MaxTunnelPorts is the largest number of tunnel ports.
const MaxTunnelPorts = 8

// Config is the configuration of programs.
type Config struct {
	Log                          *slog.Logger
	Mode                         Mode
	Infra                        renderer.Infra
	AnySource, NonIP, PodTunnels bool     // what pods may send
	TunnelPorts                  []uint16 // at most MaxTunnelPorts
	Flows, FlowCacheThreshold    int
	MaxBytes                     int // limit of a map; zero, or more than the kernel supports: the limit of the kernel
	Lines, Slots                 int // smallest size of a policy map
	Uplinks                      bool
}

// Loader loads programs. Load and Program are safe for concurrent use; one goroutine at a time may
// call the other methods.
type Loader struct {
	config  Config
	limits  limits
	layouts *Tracker
	shared  map[string]*ebpf.Map
	seed    uint64
	version [16]byte
	left    []uint16 // ports of tunnels that programs have no place for
}

// New returns a loader. It detects the limits of the kernel.
func New(c Config, layouts *Tracker) (*Loader, error) {
	limits, err := measure(c.MaxBytes)
	if err != nil {
		return nil, err
	}
	c.TunnelPorts = slices.Sorted(slices.Values(c.TunnelPorts))
	if c.Flows > limits.flows {
		c.Log.Warn("the connection table is smaller than configured: this kernel limits the size of map values", "flows", limits.flows, "wanted", c.Flows)
	} else {
		limits.flows = c.Flows
	}
	return &Loader{config: c, limits: limits, layouts: layouts}, nil
}

// SharedSpecs returns the specs of the shared maps.
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

// Share sets the shared maps that programs use, and the seed of the connection table.
func (l *Loader) Share(shared map[string]*ebpf.Map, seed uint64) error {
	l.shared, l.seed = shared, seed
	return l.identify()
}

// Version identifies the programs that this process loads, with their configuration and their
// shared maps. Programs of an earlier process may have another version.
func (l *Loader) Version() [16]byte { return l.version }

func (l *Loader) identify() error {
	hz, shift, err := Ticks()
	if err != nil {
		return err
	}
	h := sha256.New()
	h.Write(bpf.Object())
	_, err = fmt.Fprint(h, l.conf(), hz, shift, l.shared[bpf.SluiceMapConns].ValueSize(), l.seed, l.threshold(), l.layouts.Now(), l.Behind(), l.config.Mode.tags(), l.config.TunnelPorts)
	copy(l.version[:], h.Sum(nil))
	return err
}

// Limits returns how many lines, and counters for each processor, a policy map may have.
func (l *Loader) Limits() (lines, slots int) { return l.limits.lines(), l.limits.slots() }

// CPUs returns the number of possible processors.
func (l *Loader) CPUs() int { return l.limits.cpus }

// Runs reports whether the mode attaches programs to interfaces.
func (l *Loader) Runs() bool { return l.config.Mode.Runs() }

// Tunnels adds ports of tunnels that the node has, and reports whether programs must be loaded
// again. Ports stay until the process ends: a device that is made anew costs nothing. It warns of
// ports that programs have no place for.
func (l *Loader) Tunnels(ports []uint16) (bool, error) {
	all, left := l.tunnels(ports)
	if left = slices.DeleteFunc(left, func(p uint16) bool { return slices.Contains(l.left, p) }); len(left) > 0 {
		l.left = append(l.left, left...)
		l.config.Log.Warn("pods may send tunnel packets to ports of this node: programs know no more", "ports", left, "known", all)
	}
	if len(all) == len(l.config.TunnelPorts) {
		return false, nil
	}
	if l.config.TunnelPorts = all; l.shared == nil { // Share identifies
		return true, nil
	}
	return true, l.identify()
}

// NewTunnel returns a port of the node's tunnels that Tunnels would add, 0 for none.
func (l *Loader) NewTunnel(ports []uint16) uint16 {
	all, _ := l.tunnels(ports)
	for _, p := range all {
		if !slices.Contains(l.config.TunnelPorts, p) {
			return p
		}
	}
	return 0
}

// tunnels returns the ports of tunnels with more of them, and those that have no place, sorted.
func (l *Loader) tunnels(more []uint16) (all, left []uint16) {
	all = slices.Clone(l.config.TunnelPorts)
	if l.config.PodTunnels {
		return all, nil
	}
	for _, p := range more {
		switch {
		case slices.Contains(all, p):
		case len(all) == MaxTunnelPorts:
			left = append(left, p)
		default:
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all, left
}

// Layout returns what is known of the kernel's layout now.
func (l *Loader) Layout() Layout { return l.layouts.Now() }

// Renew reports whether programs with an older layout must be loaded again, because more of the
// kernel's layout is known now.
func (l *Loader) Renew(than Layout) (bool, error) {
	if l.layouts.Again() == than {
		return false, nil
	}
	l.config.Log.Info("the kernel tracks connections now: packets with an address of the node are judged by their original sender")
	return true, l.identify()
}

// Behind reports whether packets of pods to the node are judged at its netfilter hooks, after the
// translation of services.
func (l *Loader) Behind() bool {
	if !l.config.Mode.Runs() || l.config.AnySource || !hasStack() {
		return false
	}
	known := l.layouts.Now()
	return known.tag != 0 && known.length != 0 && known.by != 0
}

// Size is the size of a policy map, and the part of its programs' configuration that may differ in
// the next policy map.
type Size struct {
	Lines, Slots int
	Parity       uint32 // successive policy maps have 0 and 1 in turn
	Layout       Layout
}

// SizeOf returns the Size of a policy map with at least so many lines and counters.
func (l *Loader) SizeOf(lines, slots int, parity uint32) Size {
	return Size{max(lines, l.config.Lines, minLines), max(slots, l.config.Slots, 2), parity, l.layouts.Now()}
}

// Load loads the programs that a policy map needs: those of the mode, those of uplinks, and the
// given others. The verifier takes most of the time of a load, so Program loads all other programs
// on first use. Load creates the maps that are not given.
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

// Program loads one program with the maps of a policy map.
func (l *Loader) Program(name string, s Size, given map[string]*ebpf.Map) (*ebpf.Program, error) {
	coll, err := l.collection(s, []string{name}, given)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}

// collection loads programs, with the shared and the given maps.
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
		case replace[name] == nil && slices.Contains(MapNames, name): // the spec of a section must keep its name, so the map is created here, with ours
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

// named creates the map of a section, with our name.
func named(m *ebpf.MapSpec) (*ebpf.Map, error) {
	m = m.Copy()
	m.Name = bpf.KernelName(m.Name)
	return ebpf.NewMap(m)
}

// spec returns the configured specs of the programs and maps of a policy map.
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
		bpf.SluiceVarSkbSummed: s.Layout.summed, bpf.SluiceVarSkbSummedShift: s.Layout.summedShift, bpf.SluiceVarSkbChecksum: s.Layout.checksum,
		bpf.SluiceVarSkbHead: s.Layout.head, bpf.SluiceVarSkbData: s.Layout.data,
		bpf.SluiceVarSkbInterface: s.Layout.by, bpf.SluiceVarConnectionSource: s.Layout.source, bpf.SluiceVarConnectionStep: s.Layout.step, bpf.SluiceVarConnectionStatus: s.Layout.status,
		bpf.SluiceVarJudgeInStack: bit(l.Behind()), bpf.SluiceVarTags: bit(l.config.Mode.tags()),
		bpf.SluiceVarConf: l.conf(), bpf.SluiceVarTicksPerSecond: hz, bpf.SluiceVarTickShift: shift, bpf.SluiceVarPolicyParity: s.Parity,
		bpf.SluiceVarRecentThreshold: l.threshold(), bpf.SluiceVarFlowSeed: l.seed, bpf.SluiceVarReorders: bit(runtime.GOARCH != "amd64"), // amd64 keeps loads and stores in order
		bpf.SluiceVarTunnelPorts: ports,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("configure the program: %s: %w", name, err)
		}
	}
	return spec, nil
}

func (l *Loader) conf() (c uint32) {
	for flag, on := range map[uint32]bool{
		bpf.ConfNeighbours: !l.config.Infra.NoNeighbours, bpf.ConfErrors: !l.config.Infra.NoErrors, bpf.ConfSpoof: l.config.AnySource,
		bpf.ConfClosed: true, bpf.ConfNonIP: l.config.NonIP, bpf.ConfTunnels: l.config.PodTunnels,
	} {
		if on {
			c |= flag
		}
	}
	return c
}

// threshold returns the number of active flows above which the program looks into the recent-flow
// cache first.
func (l *Loader) threshold() uint32 { return uint32(max(l.config.FlowCacheThreshold, 0)) }

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Ticks returns how many ticks of the kernel a second has, and the power of two of ticks that is
// about a quarter of a second. The latter is the unit of times in the connection table.
func Ticks() (hz, shift uint32, err error) {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, 0, fmt.Errorf("length of a tick: %w", err)
	}
	if n := tick.Nano(); n > 0 {
		hz = uint32((1e9 + n/2) / n)
	}
	if hz < 4 || hz > 10000 {
		return 0, 0, fmt.Errorf("the kernel reports an invalid tick of %d ns", tick.Nano())
	}
	return hz, uint32(bits.Len32(hz/4) - 1), nil
}
