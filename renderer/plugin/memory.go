package plugin

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// MemoryOptions configure a Memory.
type MemoryOptions struct {
	Directory string // of the files; it is created for root only
	Infra     renderer.Infra

	AnySource   bool     // pods may send from any source address
	PodTunnels  bool     // pods may send tunnel packets, which a node might decapsulate
	TunnelPorts []uint16 // UDP ports of tunnels; at most xdp.MaxTunnelPorts; nil: xdp.DefaultTunnelPorts

	Lines int // capacity of a policy map; zero: xdp.DefaultMaxLines
	Slots int // capacity for counters of rules; zero: DefaultSlots
	Flows int // size of the connection table, a power of two; zero: xdp.DefaultFlows
	// FlowCacheThreshold is that of xdp.KernelOptions.
	FlowCacheThreshold int
}

// DefaultSlots is how many rules are counted. Rules beyond that are enforced as well.
const DefaultSlots = 1 << 16

// chunk is how much of the policy file is allocated at once, in lines: 1 MiB.
const chunk = 1 << 14

// graceTimeout bounds how long Grace waits for a frame of packets. A frame takes microseconds.
const graceTimeout = 5 * time.Second

// Memory has two policy maps in a file, one of which is in force, and reads the state of the
// program. It implements the parts of xdp.Dataplane that need no interfaces. One goroutine at a
// time may use it; any goroutine may call Hits, Drops and Connections.
type Memory struct {
	files

	running   sync.RWMutex // read-locked while the state file is read, so that it stays mapped
	preparing bool
	records   [2]map[uint32]uint32 // of both policy maps, by endpoint
	allocated [2]int               // lines
	reported  atomic.Int64         // since when after boot events are wanted; 0: they are not
}

// Open adopts the files of a directory, or creates them. It changes no verdict unless the settings
// differ. One process at a time may have a directory open.
func Open(o MemoryOptions) (*Memory, error) {
	o.Lines, o.Slots, o.Flows = cmp.Or(o.Lines, xdp.DefaultMaxLines), cmp.Or(o.Slots, DefaultSlots), cmp.Or(o.Flows, xdp.DefaultFlows)
	if o.TunnelPorts == nil {
		o.TunnelPorts = xdp.DefaultTunnelPorts
	}
	switch {
	case o.Flows < 0 || o.Flows > xdp.MaxFlows || o.Flows&(o.Flows-1) != 0:
		return nil, fmt.Errorf("invalid size of the connection table: %d, want a power of two, at most %d", o.Flows, xdp.MaxFlows)
	case len(o.TunnelPorts) > xdp.MaxTunnelPorts:
		return nil, fmt.Errorf("too many tunnel ports: %d, want at most %d", len(o.TunnelPorts), xdp.MaxTunnelPorts)
	case o.Lines < 1 || o.Slots < 1:
		return nil, fmt.Errorf("invalid size of the policy map: %d lines, %d counters", o.Lines, o.Slots)
	}
	m := &Memory{records: [2]map[uint32]uint32{{}, {}}}
	if err := m.start(o); err != nil {
		return nil, errors.Join(fmt.Errorf("policy memory %s: %w", o.Directory, err), m.Close())
	}
	return m, nil
}

func (m *Memory) start(o MemoryOptions) (err error) {
	defer survive(&err)()
	if err := m.open(o.Directory, layoutOf(o.Lines, o.Slots, o.Flows)); err != nil {
		return err
	}
	m.configure(o)
	return m.readEndpoints()
}

// holdsPolicy reports whether the policy map in force is that of some Apply.
func (m *Memory) holdsPolicy() bool { return m.StateDigest() != xdp.StateDigest{} }

// readable returns why nothing can be read from the memory. Any goroutine may call it.
func (m *Memory) readable() error {
	m.running.RLock()
	defer m.running.RUnlock()
	if m.policyFile == nil {
		return os.ErrClosed
	}
	return m.intact()
}

// configure sets the settings of the classifier.
func (m *Memory) configure(o MemoryOptions) {
	s := &m.header.Settings
	conf := uint32(bpf.ConfClosed)
	for flag, on := range map[uint32]bool{
		bpf.ConfNeighbours: !o.Infra.NoNeighbours, bpf.ConfErrors: !o.Infra.NoErrors, bpf.ConfSpoof: o.AnySource, bpf.ConfTunnels: o.PodTunnels,
	} {
		if on {
			conf |= flag
		}
	}
	var ports [8]uint32
	for i, port := range o.TunnelPorts {
		ports[i] = uint32(port)
	}
	s.Conf, s.TunnelPorts = conf, ports
	s.RecentThreshold = uint32(max(cmp.Or(o.FlowCacheThreshold, xdp.DefaultFlowCacheThreshold), 0))
	m.header.EventFilter = bpf.SluiceEventFilter{} // a killed process may have left it
	atomic.AddUint32(&s.Serial, 1)
	m.changed() // verdicts that packets cached may be older than this process
	m.Divide(0)
}

// readEndpoints reads the endpoint table of the policy map in force.
func (m *Memory) readEndpoints() error {
	for place := range uint32(bpf.Places) {
		record := atomic.LoadUint64(m.place(m.inForce(), place))
		if record == 0 {
			continue
		}
		if record >= uint64(m.layout.Sizes.Lines) {
			return fmt.Errorf("invalid record of place %d: line %d of %d", place, record, m.layout.Sizes.Lines)
		}
		m.records[m.inForce()][m.Word(uint32(record)*compile.LineWords+compile.RecordID)] = uint32(record)
	}
	return nil
}

func (m *Memory) inForce() uint32 { return m.header.Settings.InForce & 1 }

// written returns the policy map that writes go to.
func (m *Memory) written() uint32 {
	if m.preparing {
		return 1 - m.inForce()
	}
	return m.inForce()
}

// changed starts a new generation: the next packet of each connection evaluates its list again.
func (m *Memory) changed() { atomic.AddUint32(&m.header.Changes.Generation, 1) }

// StateDigest implements xdp.Dataplane. It returns zero if an agent of another version wrote the
// policy map.
func (m *Memory) StateDigest() (d xdp.StateDigest) {
	if m.header.Owned.Version == classifier() {
		d = m.header.Owned.Digest
	}
	return d
}

// classifier identifies the sources of the classifier, which change with the layout of the policy
// map.
var classifier = sync.OnceValue(func() (id [16]byte) {
	sum := sha256.Sum256(bpf.Object())
	copy(id[:], sum[:])
	return id
})

// SetStateDigest implements xdp.Dataplane.
func (m *Memory) SetStateDigest(d xdp.StateDigest) error {
	m.header.Owned = owned{d, classifier()}
	return nil
}

// Secret implements xdp.Dataplane.
func (m *Memory) Secret() uint64 { return m.header.Changes.Seed }

// Size implements xdp.Dataplane. The memory of a policy map is allocated when it is written.
func (m *Memory) Size() (lines, slots int) { return m.Limits() }

// Limits implements xdp.Dataplane.
func (m *Memory) Limits() (lines, slots int) {
	return int(m.layout.Sizes.Lines), int(m.layout.Sizes.Slots)
}

// Prepare implements xdp.Dataplane.
func (m *Memory) Prepare(lines, _ int) error {
	m.preparing = true
	which := m.written()
	begin, end := m.layout.At.Endpoints[which], m.layout.At.Names[which]+uint64(m.layout.Sizes.Slots)*nameBytes
	if err := m.punch(begin, end-begin); err != nil {
		return err
	}
	clear(m.records[which])
	m.allocated[which] = 0
	return m.allocate(which, lines)
}

// allocate allocates the first lines of a policy map: a write to memory that is not there would end
// the process.
func (m *Memory) allocate(which uint32, lines int) error {
	if lines <= m.allocated[which] {
		return nil
	}
	if lines > int(m.layout.Sizes.Lines) {
		return fmt.Errorf("the policy map has no line %d", lines)
	}
	lines = min((lines+chunk-1)/chunk*chunk, int(m.layout.Sizes.Lines))
	endpoints, begin := m.layout.At.Endpoints[which], m.layout.At.Lines[which]
	for at, size := range map[uint64]int{endpoints: bpf.EndpointsBytes, begin: lines * bpf.LineBytes} {
		if err := unix.Fallocate(int(m.policyFile.Fd()), 0, int64(at), int64(size)); err != nil {
			return fmt.Errorf("allocate %d lines of the policy map: %w", lines, err)
		}
	}
	m.allocated[which] = lines
	return nil
}

// Write implements xdp.Dataplane.
func (m *Memory) Write(line uint32, content []compile.Line) error {
	if len(content) == 0 {
		return nil
	}
	which := m.written()
	if err := m.allocate(which, int(line)+len(content)); err != nil {
		return err
	}
	from := unsafe.Slice((*byte)(unsafe.Pointer(&content[0])), len(content)*bpf.LineBytes)
	copy(m.policy[m.layout.At.Lines[which]+uint64(line)*bpf.LineBytes:], from)
	return nil
}

// Store implements xdp.Dataplane.
func (m *Memory) Store(word, value uint32) error {
	which := m.written()
	if err := m.allocate(which, int(word/compile.LineWords)+1); err != nil {
		return err
	}
	atomic.StoreUint32(m.word(which, word), value)
	m.changed()
	return nil
}

// ErrPlace is returned for an endpoint whose place in the endpoint table is taken, because its
// number and that of another one differ by a multiple of 16 384.
var ErrPlace = errors.New("another interface has its place in the endpoint table")

// Flip implements xdp.Dataplane.
func (m *Memory) Flip(id, record uint32) error {
	which := m.written()
	if err := m.allocate(which, 1); err != nil {
		return err
	}
	place, records := id%bpf.Places, m.records[which]
	if now := atomic.LoadUint64(m.place(which, place)); now != 0 {
		if owner := *m.word(which, uint32(now)*compile.LineWords+compile.RecordID); owner != id {
			if record == 0 {
				return nil
			}
			return fmt.Errorf("interface %d: %w: interface %d", id, ErrPlace, owner)
		}
	}
	if records[id] = record; record == 0 {
		delete(records, id)
	}
	atomic.StoreUint64(m.place(which, place), uint64(record))
	m.changed()
	return nil
}

// Switch implements xdp.Dataplane.
func (m *Memory) Switch() (left []uint64, err error) {
	if !m.preparing {
		return nil, nil
	}
	m.running.Lock()
	defer m.running.Unlock()
	old, slots := m.inForce(), m.layout.Sizes.Slots
	clear(m.counters(1 - old)) // of the policy map before
	atomic.StoreUint32(&m.header.Settings.Rules[1-old], 0)
	m.preparing = false
	atomic.StoreUint32(&m.header.Settings.InForce, 1-old)
	atomic.AddUint32(&m.header.Settings.Serial, 1)
	m.header.Changes.Parity = 1 - old
	defer m.changed() // when no packet caches verdicts of the old policy map any more
	if err := m.Grace(); err != nil {
		return nil, err
	}
	return m.count(old, 0, slots), nil
}

func (m *Memory) count(which, first, count uint32) []uint64 {
	out, counters := make([]uint64, count), m.counters(which)
	for i := range out {
		out[i] = bpf.Sum(counters, int(first)+i, int(m.layout.Sizes.Slots))
	}
	return out
}

// Grace implements xdp.Dataplane. It waits until each thread has ended the frame of packets that it
// was at.
func (m *Memory) Grace() (err error) {
	defer survive(&err)()
	used, err := m.used()
	if err != nil || !used {
		return err
	}
	deadline := time.Now().Add(graceTimeout)
	for i := range m.threads.Epochs {
		frames := &m.threads.Epochs[i].Frames
		before := atomic.LoadUint64(frames)
		for before%2 == 1 && atomic.LoadUint64(frames) == before {
			if time.Now().After(deadline) {
				if used, err := m.used(); err != nil || !used {
					return err
				}
				return fmt.Errorf("thread %d of VPP has judged packets for %s", i, graceTimeout)
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}

// Word implements xdp.Dataplane.
func (m *Memory) Word(i uint32) uint32 { return atomic.LoadUint32(m.word(m.inForce(), i)) }

// Record implements xdp.Dataplane.
func (m *Memory) Record(id uint32) uint32 { return m.records[m.inForce()][id] }

// Permits reports whether the policy map permits the first packet of a flow.
func (m *Memory) Permits(id uint32, dir compile.Direction, f api.Flow) (permitted bool, err error) {
	defer survive(&err)()
	record := m.Record(id)
	return record != 0 && compile.Reader{Word: m.Word}.Verdict(record, dir, f)&compile.Allow != 0, nil
}

// Hits implements xdp.Dataplane.
func (m *Memory) Hits(first, count uint32) (out []uint64, err error) {
	defer survive(&err)()
	m.running.RLock()
	defer m.running.RUnlock()
	if m.state == nil {
		return nil, os.ErrClosed
	}
	slots := m.layout.Sizes.Slots
	return m.count(m.inForce(), first, min(count, slots-min(first, slots))), nil
}

// Divide sets the share of the connection table to an equal part for each of the given number of
// endpoints.
func (m *Memory) Divide(endpoints int) {
	places := m.layout.Sizes.Buckets * bpf.BucketFlows
	atomic.StoreUint32(&m.header.Limits.Flows, places/uint32(max(endpoints, 1)))
}

// Connections returns how many connections are tracked, expired ones included.
func (m *Memory) Connections() (n int) {
	m.running.RLock()
	defer m.running.RUnlock()
	for i := range m.layout.Sizes.Buckets {
		b := m.bucket(i)
		for j := range b.Flow {
			if atomic.LoadUint64(&b.Flow[j].State)&stateUsed != 0 {
				n++
			}
		}
	}
	return n
}

// Drops returns how many packets were dropped so far, by reason. Any goroutine may call it.
func (m *Memory) Drops() (out map[xdp.Reason]uint64, err error) {
	defer survive(&err)()
	m.running.RLock()
	defer m.running.RUnlock()
	if m.state == nil {
		return nil, os.ErrClosed
	}
	counts := make([]uint64, bpf.DropBytes/bpf.CounterBytes)
	all := m.state[m.layout.At.Drops : m.layout.At.Drops+mostThreads*bpf.DropBytes]
	for i := range counts {
		counts[i] = bpf.Sum(all, i, len(counts))
	}
	return xdp.DropsByReason(counts), nil
}

// Close unmaps the files. What they say stays in force.
func (m *Memory) Close() error {
	m.running.Lock()
	defer m.running.Unlock()
	return m.close()
}
