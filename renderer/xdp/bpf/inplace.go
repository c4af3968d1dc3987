package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

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
	BucketBytes = int(unsafe.Sizeof(SluiceBucket{}))
	HitBytes    = 8
	ReasonBytes = 16 * 8 // of reasons, for a processor
	EndsBytes   = 8 << 14
	ReachBytes  = int(unsafe.Sizeof(SluiceReach{})) << 14
	ShareBytes  = int(unsafe.Sizeof(SluiceShare{})) << 14
	LatelyBytes = 16 << 16
)

// Sizes say how much there is of what has no fixed size.
type Sizes struct {
	Lines   int // of memory
	Slots   int // for what rules decided, of each processor; whole lines of the cache: a multiple of 8
	Buckets int // of flows, a power of two
	CPUs    int
}

// Apply gives the maps of such memory their sizes, and tells the programs. They begin with zeros, and may be
// mapped.
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
