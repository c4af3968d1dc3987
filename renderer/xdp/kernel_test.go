package xdp_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// needKernel skips a test where the kernel takes no programs from us.
func needKernel(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 || os.Getenv("SLUICE_NO_KERNEL") != "" { // where tests are ended in their middle, nothing may be left
		t.Skip("not root: the kernel takes no programs from us")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Skipf("no memory may be locked: %v", err)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		t.Skipf("the kernel takes no programs: %v", err)
	}
}

func newKernel(t testing.TB, o xdp.KernelOptions) *xdp.Kernel {
	t.Helper()
	needKernel(t)
	k, err := xdp.NewKernel(o)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return k
}

// pool has kernels that are not used at the moment, because loading programs takes time.
var pool []*xdp.Kernel

// pooled is a kernel that goes back to the pool. What it permits is read from its memory;
// of every so many flows the kernel itself is asked about one, and must say the same.
type pooled struct {
	*xdp.Kernel
	every, asked int
}

// askEvery is of how many flows one is; with SLUICE_LONG the kernel is asked about all.
func askEvery() int {
	if os.Getenv("SLUICE_LONG") != "" {
		return 1
	}
	return 23
}

// Grace returns at once: packets run when they are asked about, one by one.
func (p *pooled) Grace() error { return nil }

func (p *pooled) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	ids, err := p.Attached()
	if err != nil {
		return false, err
	}
	read := !slices.Contains(ids, id) || compile.Reader{Word: p.Word}.Verdict(p.Record(id), dir, f)&compile.Allow != 0
	if p.asked++; p.asked%p.every != 0 {
		return read, nil
	}
	ok, err := p.Kernel.Permits(id, dir, f)
	if err == nil && ok != read {
		err = fmt.Errorf("endpoint %d, direction %d, flow %s: the kernel says %t, its memory %t", id, dir, f, ok, read)
	}
	return ok, err
}

func (p *pooled) Close() error {
	ids, err := p.Attached()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := errors.Join(p.Detach(id), p.Flip(id, 0)); err != nil {
			return err
		}
	}
	pool = append(pool, p.Kernel)
	return p.SetMark(xdp.Mark{})
}

func fromPool(t testing.TB) *pooled {
	if n := len(pool); n > 0 {
		k := pool[n-1]
		pool = pool[:n-1]
		return &pooled{Kernel: k, every: askEvery()}
	}
	return &pooled{every: askEvery(), Kernel: newKernel(t, xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 1024, KeepSpare: true, Lines: 1 << 15, Slots: 256})}
}

// TestConformanceInTheKernel runs the suite with the kernel's verdicts about crafted packets.
func TestConformanceInTheKernel(t *testing.T) {
	needKernel(t)
	if testing.Short() {
		t.Skip("short: the suite runs in the heap")
	}
	t.Cleanup(func() {
		for _, k := range pool {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
		pool = nil
	})
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, fromPool(t)) })
}
