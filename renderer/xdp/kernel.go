package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// DefaultPinPath is where links and maps are pinned.
const DefaultPinPath = "/sys/fs/bpf/sluice"

// KernelOptions say how the kernel enforces.
type KernelOptions struct {
	Log  *slog.Logger // nil discards
	Mode Mode
	// PinPath is a folder of a bpf file system. What is pinned there goes on when the process
	// ends, and is taken over by the next. Empty: nothing is pinned.
	PinPath string
	// Owner is remembered with the pins. Those of another node are taken over only with TakeOver.
	Owner    Owner
	TakeOver bool
	Infra    renderer.Infra

	AnySource   bool     // pods may send from addresses that are not theirs
	NonIP       bool     // isolated pods may exchange frames that are not IP
	PodTunnels  bool     // pods may send what nodes may take for a packet in a packet
	TunnelPorts []uint16 // of UDP, of such packets; MaxTunnelPorts at most; nil: DefaultTunnelPorts
	Flows       int      // places in the table of flows; zero: DefaultFlows
	// Crowd is how many flows that go on in a quarter of a second are so many that traces of them are
	// asked before the table of flows. Zero: DefaultCrowd; negative: any.
	Crowd int
	// MaxBytes is how large each memory may be that programs read in place. Zero, and more than that:
	// what the kernel can: 512 MiB, or 4 MiB.
	MaxBytes int

	// KeepSpare keeps the memory that was in force before, so that the next one need not be
	// loaded. It is for those that replace memories often.
	KeepSpare bool
	// Lines and Slots are what a memory has at least.
	Lines, Slots int

	senders *tracker // nil but in tests

	// Uplinks are interfaces at which packets to pods are dropped early.
	Uplinks []uint32
}

// Kernel is a Plane in the kernel.
type Kernel struct {
	options KernelOptions
	log     *slog.Logger
	pins    *os.File             // the folder, locked; nil without pins
	state   map[string]*ebpf.Map // of flows: outlives memories
	history history
	dropped []byte // packets by why, of all processors; mapped
	cpus    int
	running sync.RWMutex // read while a program is run, or what it counted is read; nothing is closed then
	loading sync.Mutex   // of programs that are asked the first time
	force   *memory
	next    *memory
	spare   *memory // was in force before
	mark    *ebpf.Map
	version [16]byte // of what it loads
	senders *tracker
	links   map[uint32]*hooks
	uplinks map[uint32]attachment
	stack   map[string][]judge // by point
	reached []byte             // of gateways, mapped
	shares  []byte             // by endpoint, mapped
	blank   bool               // nothing was written to force, and nobody runs it
	writes  uint64             // to memories, so far
	digest  digest             // of the memory in force
	noTCX   bool               // in the kernel, as far as is known
	outer   *ebpf.Map          // whose updates wait for all packets on their way
	inner   *ebpf.Map
	told    uint32       // events of a second that are told of
	since   atomic.Int64 // sinceBoot when that began
}

// NewKernel takes over what is pinned, or begins with nothing. Nothing is enforced by it. A folder for
// pins has one owner at a time: a PinsError says why it cannot be this process.
func NewKernel(o KernelOptions) (*Kernel, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Flows == 0 {
		o.Flows = DefaultFlows
	}
	if o.Flows < 0 || o.Flows > MaxFlows {
		return nil, fmt.Errorf("a table of %d flows: want %d at most", o.Flows, MaxFlows)
	}
	if o.TunnelPorts == nil {
		o.TunnelPorts = DefaultTunnelPorts
	}
	if len(o.TunnelPorts) > MaxTunnelPorts {
		return nil, fmt.Errorf("%d ports of tunnels: want %d at most", len(o.TunnelPorts), MaxTunnelPorts)
	}
	if o.Crowd == 0 {
		o.Crowd = DefaultCrowd
	}
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if !slices.Contains(Modes, o.Mode) {
		return nil, fmt.Errorf("%q is no mode of attachment", o.Mode)
	}
	k := &Kernel{options: o, log: o.Log, state: map[string]*ebpf.Map{}, links: map[uint32]*hooks{}, uplinks: map[uint32]attachment{}, stack: map[string][]judge{}}
	if k.senders = o.senders; k.senders == nil {
		k.senders = newTracker(layoutOf)
	}
	if err := k.open(); err != nil {
		return nil, errors.Join(k.permitted(err), k.Close())
	}
	return k, nil
}

func (k *Kernel) open() error {
	if k.options.PinPath != "" {
		if err := CheckPins(k.options.PinPath); err != nil {
			return fmt.Errorf("folder for pins: %w: %s", err, PinsRemedy)
		}
		if err := os.MkdirAll(k.options.PinPath, 0o700); err != nil {
			return fmt.Errorf("folder for pins: %w", err)
		}
		if err := k.own(); err != nil {
			return err
		}
	}
	if err := k.measure(); err != nil {
		return err
	}
	spec, err := bpf.LoadSluice()
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if err := k.size(spec, minLines, 0); err != nil {
		return err
	}
	for _, name := range stateMaps {
		if k.state[name], err = k.stateMap(spec.Maps[name]); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	if k.history, err = newHistory(k.state[bpf.SluiceMapChanges]); err != nil {
		return fmt.Errorf("map %s: %w", bpf.SluiceMapChanges, err)
	}
	for name, b := range map[string]*[]byte{bpf.SluiceMapReasons: &k.dropped, bpf.SluiceMapGateways: &k.reached, bpf.SluiceMapShares: &k.shares} {
		if *b, err = mapped(k.state[name]); err != nil {
			return fmt.Errorf("map memory: %w", err)
		}
	}
	if err := k.countFlows(); err != nil { // the table may be another one
		return err
	}
	if k.version, err = k.loads(); err != nil {
		return err
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
	if k.options.Mode != ModeNone && !k.behind() {
		k.log.Warn("what pods send to a service is judged by the address of the service, not of the pods behind it: that needs Linux 6.4, " +
			"and pods that send from their own addresses only")
	}
	if err := k.Tell(Telling{}); err != nil { // a process that was killed may have listened
		return err
	}
	return errors.Join(k.adopt(), k.divide())
}

// Close ends what is not pinned. What is goes on, and has no owner any more.
func (k *Kernel) Close() error {
	k.running.Lock()
	defer k.running.Unlock()
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
	errs = append(errs, k.force.close(), k.spare.close(), k.history.close())
	for _, b := range []*[]byte{&k.dropped, &k.reached, &k.shares} {
		if *b != nil {
			errs = append(errs, unix.Munmap(*b))
			*b = nil
		}
	}
	for _, judges := range k.stack {
		for _, j := range judges {
			errs = append(errs, j.Close())
		}
	}
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
	if k.pins != nil { // last: the next owner may change everything
		errs = append(errs, k.pins.Close())
		k.pins = nil
	}
	return errors.Join(errs...)
}
