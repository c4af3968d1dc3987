package xdp

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// mostBytes is how large memory may be that programs read in place as one value of a map: known from
// BPF_MAX_VAR_OFF of include/linux/bpf_verifier.h.
const mostBytes = 1 << 29

// mostBytesOld is KMALLOC_MAX_SIZE, the limit of older kernels, until about 6.0: 4 MiB where pages have 4 KiB.
func mostBytesOld() int { return min(os.Getpagesize()<<10, mostBytes/2) }

// measure finds out how much there may be of everything.
func (k *Kernel) measure() (err error) {
	if k.cpus, err = ebpf.PossibleCPU(); err != nil {
		return fmt.Errorf("number of processors: %w", err)
	}
	most, err := valueBytes()
	if err != nil {
		return err
	}
	if k.options.MaxBytes <= 0 || k.options.MaxBytes > most {
		k.options.MaxBytes = most
	}
	if k.options.MaxBytes < minLines*bpf.LineBytes {
		return fmt.Errorf("memories of %d bytes at most: want %d, or more", k.options.MaxBytes, minLines*bpf.LineBytes)
	}
	if flows := bucketFlows * floorPower(k.options.MaxBytes/bpf.BucketBytes); k.options.Flows > flows {
		k.log.Warn("the table of flows is smaller than it should be: the kernel has no larger values", "flows", flows, "wanted", k.options.Flows)
		k.options.Flows = flows
	}
	return nil
}

// valueBytes asks the kernel how large a value may be.
func valueBytes() (int, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_large", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(mostBytesOld() + 8), MaxEntries: 1})
	switch {
	case errors.Is(err, unix.E2BIG):
		return mostBytesOld(), nil
	case err != nil:
		return 0, fmt.Errorf("ask how large memory may be: %w", err)
	}
	return mostBytes, m.Close()
}

// Limits implements Plane. Counters are those of all processors together.
func (k *Kernel) Limits() (lines, slots int) {
	return floorPower(k.options.MaxBytes / bpf.LineBytes), k.options.MaxBytes / bpf.HitBytes / k.cpus &^ (slotsPerLine - 1)
}

// floorPower is the largest power of two that is not more than n, which is positive.
func floorPower(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// size gives maps the sizes that they have with a memory, if it is none that is too large. Lines are a power
// of two, with which older verifiers know how far an index goes.
func (k *Kernel) size(spec *ebpf.CollectionSpec, lines, slots int) error {
	most, mostSlots := k.Limits()
	if lines > floorPower(lines) {
		lines = 2 * floorPower(lines)
	}
	if err := fits(lines, most); err != nil {
		return err
	}
	if slots > mostSlots {
		return fmt.Errorf("%w: there are %d counters, and there may be %d", ErrTooLarge, slots, mostSlots)
	}
	return bpf.Sizes{Lines: lines, Slots: stride(slots), Buckets: flowBuckets(k.options.Flows), CPUs: k.cpus}.Apply(spec)
}

// fits returns why a memory is too large.
func fits(lines, most int) error {
	if lines > most {
		return fmt.Errorf("%w: it takes %d lines of 64 bytes, and there may be %d", ErrTooLarge, lines, most)
	}
	return nil
}
