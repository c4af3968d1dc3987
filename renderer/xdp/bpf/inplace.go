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

// KernelNames is what the names of Sluice's programs and maps begin with in the kernel.
const KernelNames = "sluice_"

// KernelName returns the name of a map for the kernel, which has no room for more than 15 bytes.
func KernelName(name string) string { return KernelNames + strings.TrimPrefix(name, ".data.") }

// Places is how many places the tables have that are indexed by the low bits of an endpoint's ID.
const Places = 1 << 14

// Memory that programs read in place: a map with one value. bpf2go has no names for these.
const (
	SluiceMapMem      = ".data.mem"
	SluiceMapEnds     = ".data.ends"
	SluiceMapGateways = ".data.gateways"
	SluiceMapChanges  = ".data.changes"
	SluiceMapFlows    = ".data.flows"
	SluiceMapLately   = ".data.lately"
	SluiceMapCrowds   = ".data.crowds"
	SluiceMapHits     = ".data.hits"
	SluiceMapReasons  = ".data.reasons"
	SluiceMapListener = ".data.listener"
	SluiceMapShares   = ".data.shares"
	SluiceMapLimits   = ".data.limits"
)

// Sizes in bytes, as the program has them; a test compares.
const (
	LineBytes   = 64
	BucketFlows = 4 // places of a bucket of the connection table
	BucketBytes = int(unsafe.Sizeof(SluiceBucket{}))
	HitBytes    = 8
	ReasonBytes = 16 * 8 // of reasons, for a processor
	EndsBytes   = 8 * Places
	ReachBytes  = int(unsafe.Sizeof(SluiceReach{})) * Places
	ShareBytes  = int(unsafe.Sizeof(SluiceShare{})) * Places
	LatelyBytes = 16 << 16
)

// Sizes say how much there is of what has no fixed size.
type Sizes struct {
	Lines   int // of memory
	Slots   int // for what rules decided, of each processor; whole lines of the cache: a multiple of 8
	Buckets int // of flows, a power of two
	CPUs    int
}

// Apply gives the maps of such memory their sizes, and tells the programs. They begin with zeros,
// and may be mapped.
func (s Sizes) Apply(spec *ebpf.CollectionSpec) error {
	for name, bytes := range map[string]int{
		SluiceMapMem: s.Lines * LineBytes, SluiceMapFlows: s.Buckets * BucketBytes, SluiceMapHits: s.CPUs * s.Slots * HitBytes,
		SluiceMapReasons: s.CPUs * ReasonBytes, SluiceMapEnds: EndsBytes, SluiceMapGateways: ReachBytes, SluiceMapShares: ShareBytes, SluiceMapLately: LatelyBytes,
	} {
		m := spec.Maps[name]
		m.ValueSize, m.Value = uint32(bytes), nil // whose type has another size
	}
	for _, name := range []string{
		SluiceMapMem, SluiceMapEnds, SluiceMapGateways, SluiceMapChanges, SluiceMapFlows, SluiceMapLately, SluiceMapCrowds, SluiceMapHits, SluiceMapReasons, SluiceMapListener, SluiceMapShares,
		SluiceMapLimits,
	} {
		m := spec.Maps[name]
		m.Contents = nil
		m.Flags |= mmapable
	}
	for name, value := range map[string]int{
		SluiceVarMemLines: s.Lines, SluiceVarFlowMask: s.Buckets - 1, SluiceVarHitSlots: s.Slots, SluiceVarHitPlaces: s.CPUs * s.Slots, SluiceVarCpus: s.CPUs,
	} {
		if err := spec.Variables[name].Set(uint32(value)); err != nil {
			return fmt.Errorf("configure the program: %s: %w", name, err)
		}
	}
	return nil
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE of include/uapi/linux/bpf.h

// Map maps the values of an array map into memory. The caller unmaps it with unix.Munmap.
func Map(m *ebpf.Map) ([]byte, error) {
	page := os.Getpagesize()
	size := int(m.MaxEntries()) * int(m.ValueSize())
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memory: %w", err)
	}
	return b, nil
}

// Unmap ends what Map began, and forgets it. It does nothing for nil.
func Unmap(b *[]byte) error {
	if *b == nil {
		return nil
	}
	err := unix.Munmap(*b)
	*b = nil
	return err
}

// Sum returns the i-th counter of mapped memory, added up over all processors, of which each has
// stride counters.
func Sum(b []byte, i, stride int) (n uint64) {
	for at := i * HitBytes; at < len(b); at += stride * HitBytes {
		n += atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at])))
	}
	return n
}
