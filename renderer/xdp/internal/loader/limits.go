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

// ErrTooLarge is returned for policy that does not fit into the policy map. It is a
// renderer.Refusal.
var ErrTooLarge = renderer.Refusal("the policy does not fit into the policy map")

// MaxBytes is the largest map value that programs can read in place. The source is BPF_MAX_VAR_OFF
// of include/linux/bpf_verifier.h.
const MaxBytes = 1 << 29

// minLines is the smallest size of a policy map: the root cells of addresses, and as much for the
// rest. With very few lines the verifier would prove all reads unreachable.
const minLines = 1 << 13

// slotsPerLine is how many counters a cache line holds. Each processor has whole cache lines, so
// that no other processor writes to them.
const slotsPerLine = 8

// Stride returns how many counters each processor has for so many slots.
func Stride(slots int) int { return (slots + slotsPerLine - 1) &^ (slotsPerLine - 1) }

// limits are the limits of map sizes.
type limits struct {
	cpus     int
	maxBytes int // of one map
	flows    int // of the connection table, in connections
}

// measure finds the limits of the kernel. A positive wanted lowers the limit of bytes.
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
		return l, fmt.Errorf("invalid limit of map sizes: %d bytes, want at least %d", l.maxBytes, minLines*bpf.LineBytes)
	}
	l.flows = bpf.BucketFlows * floorPower(l.maxBytes/bpf.BucketBytes)
	return l, nil
}

// mostBytesOld returns KMALLOC_MAX_SIZE, the limit of kernels before about 6.0: 4 MiB with pages of
// 4 KiB.
func mostBytesOld() int { return min(os.Getpagesize()<<10, MaxBytes/2) }

// valueBytes finds the largest map value of the kernel, in bytes.
func valueBytes() (int, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_large", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(mostBytesOld() + 8), MaxEntries: 1})
	switch {
	case errors.Is(err, unix.E2BIG):
		return mostBytesOld(), nil
	case err != nil:
		return 0, fmt.Errorf("detect the largest map value: %w", err)
	}
	return MaxBytes, m.Close()
}

// lines returns how many lines a policy map may have, and slots how many counters for each
// processor.
func (l limits) lines() int { return floorPower(l.maxBytes / bpf.LineBytes) }
func (l limits) slots() int { return l.maxBytes / bpf.CounterBytes / l.cpus &^ (slotsPerLine - 1) }

// floorPower returns the largest power of two that is at most n, which must be positive.
func floorPower(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// apply sets the sizes of maps for a policy map with the given numbers of lines and slots. It
// returns ErrTooLarge if that exceeds the limits. It rounds lines up to a power of two, because
// older verifiers can bound an index only then.
func (l limits) apply(spec *ebpf.CollectionSpec, lines, slots int) error {
	if lines > floorPower(lines) {
		lines = 2 * floorPower(lines)
	}
	if err := CheckLines(lines, l.lines()); err != nil {
		return err
	}
	if slots > l.slots() {
		return fmt.Errorf("%w: it has %d counters, want at most %d", ErrTooLarge, slots, l.slots())
	}
	return bpf.Sizes{Lines: lines, Slots: Stride(slots), Buckets: flowBuckets(l.flows), CPUs: l.cpus}.Apply(spec)
}

// flowBuckets returns how many buckets hold so many connections, rounded up to a power of two.
func flowBuckets(flows int) int {
	return 1 << bits.Len32(uint32(max(flows, 2*bpf.BucketFlows)-1)/bpf.BucketFlows)
}

// CheckLines returns ErrTooLarge if a policy map has more lines than it may have.
func CheckLines(lines, most int) error {
	if lines > most {
		return fmt.Errorf("%w: it takes %d lines of 64 bytes, want at most %d", ErrTooLarge, lines, most)
	}
	return nil
}
