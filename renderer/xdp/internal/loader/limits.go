package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// ErrTooLarge is returned for policy that does not fit into the memory that may be used. It is a
// renderer.Refusal.
var ErrTooLarge = renderer.Refusal("policy does not fit into memory")

// MaxBytes is how large memory may be that programs read in place as one value of a map: known from
// BPF_MAX_VAR_OFF of include/linux/bpf_verifier.h.
const MaxBytes = 1 << 29

// minLines is what a policy map has at least: the cells of all addresses, and as much for the rest.
// With very few the verifier proves that nothing can be read.
const minLines = 1 << 13

// slotsPerLine is how many counters a line of the cache has: of each processor there are whole
// ones, so that no other writes there.
const slotsPerLine = 8

// Stride is how many counters a processor has for so many slots.
func Stride(slots int) int { return (slots + slotsPerLine - 1) &^ (slotsPerLine - 1) }

// limits are how large what programs read may be.
type limits struct {
	cpus     int
	maxBytes int // of one map
	flows    int // of the connection table
}

// measure finds out how large maps may be: at most as large as wanted, where that is positive.
func measure(wanted int) (l limits, err error) {
	if l.cpus, err = ebpf.PossibleCPU(); err != nil {
		return l, fmt.Errorf("number of processors: %w", err)
	}
	if l.maxBytes, err = valueBytes(); err != nil {
		return l, err
	}
	if wanted > 0 {
		l.maxBytes = min(l.maxBytes, wanted)
	}
	if l.maxBytes < minLines*bpf.LineBytes {
		return l, fmt.Errorf("memories of %d bytes at most: want %d, or more", l.maxBytes, minLines*bpf.LineBytes)
	}
	l.flows = bpf.BucketFlows * floorPower(l.maxBytes/bpf.BucketBytes)
	return l, nil
}

// mostBytesOld is KMALLOC_MAX_SIZE, the limit of older kernels, until about 6.0: 4 MiB where pages
// have 4 KiB.
func mostBytesOld() int { return min(os.Getpagesize()<<10, MaxBytes/2) }

// valueBytes asks the kernel how large a value may be.
func valueBytes() (int, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_large", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(mostBytesOld() + 8), MaxEntries: 1})
	switch {
	case errors.Is(err, unix.E2BIG):
		return mostBytesOld(), nil
	case err != nil:
		return 0, fmt.Errorf("ask how large memory may be: %w", err)
	}
	return MaxBytes, m.Close()
}

// lines is how many lines a policy map may have, and slots how many counters, those of all
// processors together.
func (l limits) lines() int { return floorPower(l.maxBytes / bpf.LineBytes) }
func (l limits) slots() int { return l.maxBytes / bpf.HitBytes / l.cpus &^ (slotsPerLine - 1) }

// floorPower is the largest power of two that is not more than n, which is positive.
func floorPower(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// apply gives maps the sizes that they have with a policy map, if it is none that is too large.
// Lines are a power of two, with which older verifiers know how far an index goes.
func (l limits) apply(spec *ebpf.CollectionSpec, lines, slots int) error {
	if lines > floorPower(lines) {
		lines = 2 * floorPower(lines)
	}
	if err := CheckLines(lines, l.lines()); err != nil {
		return err
	}
	if slots > l.slots() {
		return fmt.Errorf("%w: there are %d counters, and there may be %d", ErrTooLarge, slots, l.slots())
	}
	return bpf.Sizes{Lines: lines, Slots: Stride(slots), Buckets: flowBuckets(l.flows), CPUs: l.cpus}.Apply(spec)
}

// flowBuckets is how many buckets have so many places, as a power of two.
func flowBuckets(flows int) int {
	return 1 << bits.Len32(uint32(max(flows, 2*bpf.BucketFlows)-1)/bpf.BucketFlows)
}

// CheckLines returns why a policy map is too large: ErrTooLarge.
func CheckLines(lines, most int) error {
	if lines > most {
		return fmt.Errorf("%w: it takes %d lines of 64 bytes, and there may be %d", ErrTooLarge, lines, most)
	}
	return nil
}
