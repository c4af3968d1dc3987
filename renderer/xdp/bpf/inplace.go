package bpf

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// KernelNames is the prefix of the names of Sluice's programs and maps in the kernel.
const KernelNames = "sluice_"

// sectionPrefix begins the names of maps that are sections of the object.
const sectionPrefix = ".data."

// KernelName returns the name of a map in the kernel, which keeps at most 15 bytes.
func KernelName(name string) string { return KernelNames + strings.TrimPrefix(name, sectionPrefix) }

// pinNames are the names of pins that differ from those of their maps.
var pinNames = map[string]string{
	SluiceMapPolicy: "mem", SluiceMapEndpoints: "ends", SluiceMapEpover: "far", SluiceMapAddrs: "names", SluiceMapCounters: "hits",
	SluiceMapConns: "flows", SluiceMapRecent: "lately", SluiceMapActivity: "crowds", SluiceMapFrags: "fragments", SluiceMapEventFilter: "listener",
	SluiceMapDrops: "reasons",
}

// PinName returns the file name of the pin of a map or link. It never changes: after an upgrade or
// a roll-back, an agent of another version must find the connection table and the maps that
// attached programs use.
func PinName(name string) string {
	if pin, ok := pinNames[name]; ok {
		return pin
	}
	return strings.TrimPrefix(name, sectionPrefix)
}

// Places is the size of the tables that are indexed by the low bits of an endpoint's ID.
const Places = 1 << 14

// Maps with one value that programs read in place. bpf2go generates no names for these.
const (
	SluiceMapPolicy      = ".data.policy"
	SluiceMapEndpoints   = ".data.endpts"
	SluiceMapGateways    = ".data.gateways"
	SluiceMapChanges     = ".data.changes"
	SluiceMapConns       = ".data.conns"
	SluiceMapRecent      = ".data.recent"
	SluiceMapActivity    = ".data.activity"
	SluiceMapCounters    = ".data.counters"
	SluiceMapDrops       = ".data.drops"
	SluiceMapEventFilter = ".data.evfilter"
	SluiceMapShares      = ".data.shares"
	SluiceMapLimits      = ".data.limits"
)

// Bits of the program's variable conf.
const (
	ConfNeighbours = 1 << iota // neighbour discovery passes
	ConfErrors                 // ICMP errors pass if their quoted packet does
	ConfSpoof                  // pods may send from any address
	ConfClosed                 // packets of unknown endpoints are dropped
	ConfNonIP                  // isolated pods may exchange frames that are not IP
	ConfTunnels                // pods may send tunnel packets
)

// Sizes in bytes. They are those of the program; a test compares.
const (
	LineBytes      = 64
	BucketFlows    = 4 // connections in a bucket of the connection table
	BucketBytes    = int(unsafe.Sizeof(SluiceBucket{}))
	CounterBytes   = 8
	DropBytes      = 16 * 8 // drop counters of one processor
	EndpointsBytes = 8 * Places
	ReachBytes     = int(unsafe.Sizeof(SluiceReach{})) * Places
	ShareBytes     = int(unsafe.Sizeof(SluiceShare{})) * Places
	RecentBytes    = 16 << 16
)

// Sizes are the sizes of the maps without a fixed size.
type Sizes struct {
	Lines   int // of the policy map
	Slots   int // rule counters of each processor; whole cache lines: a multiple of 8
	Buckets int // of the connection table, a power of two
	CPUs    int
}

// Apply sets the sizes of maps, and the constants of programs that depend on them. The maps start
// with zeros, and can be mapped into memory.
func (s Sizes) Apply(spec *ebpf.CollectionSpec) error {
	for name, bytes := range map[string]int{
		SluiceMapPolicy: s.Lines * LineBytes, SluiceMapConns: s.Buckets * BucketBytes, SluiceMapCounters: s.CPUs * s.Slots * CounterBytes,
		SluiceMapDrops: s.CPUs * DropBytes, SluiceMapEndpoints: EndpointsBytes, SluiceMapGateways: ReachBytes, SluiceMapShares: ShareBytes, SluiceMapRecent: RecentBytes,
	} {
		m := spec.Maps[name]
		m.ValueSize, m.Value = uint32(bytes), nil // the declared type has one element only
	}
	for _, name := range []string{
		SluiceMapPolicy, SluiceMapEndpoints, SluiceMapGateways, SluiceMapChanges, SluiceMapConns, SluiceMapRecent, SluiceMapActivity, SluiceMapCounters, SluiceMapDrops, SluiceMapEventFilter, SluiceMapShares,
		SluiceMapLimits,
	} {
		m := spec.Maps[name]
		m.Contents = nil
		m.Flags |= mmapable
	}
	for name, value := range map[string]int{
		SluiceVarPolicyLines: s.Lines, SluiceVarFlowMask: s.Buckets - 1, SluiceVarCounterSlots: s.Slots, SluiceVarCounterPlaces: s.CPUs * s.Slots, SluiceVarCpus: s.CPUs,
	} {
		if err := spec.Variables[name].Set(uint32(value)); err != nil {
			return fmt.Errorf("configure the program: %s: %w", name, err)
		}
	}
	return nil
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE of include/uapi/linux/bpf.h

// Map maps the values of an array map into memory. The caller must unmap it by Unmap.
func Map(m *ebpf.Map) ([]byte, error) {
	page := os.Getpagesize()
	size := int(m.MaxEntries()) * int(m.ValueSize())
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of a map: %w", err)
	}
	return b, nil
}

// Unmap unmaps what Map returned, and sets it to nil. It does nothing for nil.
func Unmap(b *[]byte) error {
	if *b == nil {
		return nil
	}
	err := unix.Munmap(*b)
	*b = nil
	return err
}

// Sum returns the i-th counter of mapped memory, summed over all processors. Each processor has
// stride counters.
func Sum(b []byte, i, stride int) (n uint64) {
	for at := i * CounterBytes; at < len(b); at += stride * CounterBytes {
		n += atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at])))
	}
	return n
}
