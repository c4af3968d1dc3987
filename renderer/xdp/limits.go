package xdp

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Programs read memory in place that is one value of a map. How large that may be is known from
// BPF_MAX_VAR_OFF of include/linux/bpf_verifier.h; older kernels, until about 6.0, have no larger values than
// KMALLOC_MAX_SIZE.
const (
	mostBytes    = 1 << 29
	mostBytesOld = 4 << 20
)

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
	if flows := bucketFlows << (bits.Len(uint(k.options.MaxBytes/bpf.BucketBytes)) - 1); k.options.Flows > flows {
		k.log.Warn("the table of flows is smaller than it should be: the kernel has no larger values", "flows", flows, "wanted", k.options.Flows)
		k.options.Flows = flows
	}
	return nil
}

// valueBytes asks the kernel how large a value may be.
func valueBytes() (int, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_large", Type: ebpf.Array, KeySize: 4, ValueSize: mostBytesOld + 8, MaxEntries: 1})
	switch {
	case errors.Is(err, unix.E2BIG):
		return mostBytesOld, nil
	case err != nil:
		return 0, fmt.Errorf("ask how large memory may be: %w", err)
	}
	return mostBytes, m.Close()
}

// Limits implements Plane.
func (k *Kernel) Limits() (lines, slots int) {
	return k.options.MaxBytes / bpf.LineBytes, k.options.MaxBytes / bpf.HitBytes / k.cpus &^ (slotsPerLine - 1)
}

// size gives maps the sizes that they have with a memory, if it is none that is too large.
func (k *Kernel) size(spec *ebpf.CollectionSpec, lines, slots int) error {
	mostLines, mostSlots := k.Limits()
	if err := fits(lines, mostLines, slots, mostSlots); err != nil {
		return err
	}
	return bpf.Sizes{Lines: lines, Slots: stride(slots), Buckets: flowBuckets(k.options.Flows), CPUs: k.cpus}.Apply(spec)
}

// fits returns why a memory is too large.
func fits(lines, mostLines, slots, mostSlots int) error {
	if lines > mostLines {
		return fmt.Errorf("%w: it takes %d lines of 64 bytes, and there may be %d", ErrTooLarge, lines, mostLines)
	}
	if slots > mostSlots {
		return fmt.Errorf("%w: it has %d rules to count, and there may be %d", ErrTooLarge, slots, mostSlots)
	}
	return nil
}
