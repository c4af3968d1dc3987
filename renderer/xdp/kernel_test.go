package xdp_test

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// needKernel skips a test where the kernel takes no programs from us.
func needKernel(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
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

// TestConformanceInTheKernel runs the suite with the kernel's verdicts about crafted packets.
func TestConformanceInTheKernel(t *testing.T) {
	needKernel(t)
	if os.Getenv("SLUICE_XDP_ALL") == "" && testing.Short() {
		t.Skip("short: the suite runs in the heap")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		return newSubject(t, newKernel(t, xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 1024}))
	})
}
