package xdp_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/plugin/plugintest"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
)

// needKernel skips a test where the kernel takes no programs from us.
func needKernel(t testing.TB) {
	t.Helper()
	if err := xdptest.Missing(); err != nil {
		t.Skip(err)
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

// sampled is a dataplane with a classifier that is queried about some flows only. What it permits
// is read from its policy map; of every so many flows the classifier itself is asked about one,
// and must say the same.
type sampled struct {
	xdp.Dataplane
	every, asked int
}

// askEvery is of how many flows one is; with SLUICE_LONG the classifier is asked about all.
func askEvery() int {
	return renderertest.Extent(23, 23, 1)
}

func (s *sampled) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	ids, err := s.Attached()
	if err != nil {
		return false, err
	}
	read := !slices.Contains(ids, id) || compile.Reader{Word: s.Word}.Verdict(s.Record(id), dir, f)&compile.Allow != 0
	if s.asked++; s.asked%s.every != 0 {
		return read, nil
	}
	ok, err := s.Dataplane.Permits(id, dir, f)
	if err == nil && ok != read {
		err = fmt.Errorf("endpoint %d, direction %d, flow %s: the classifier says %t, its memory %t", id, dir, f, ok, read)
	}
	return ok, err
}

// TestConformanceInKernel runs the suite with the kernel's verdicts about crafted packets.
func TestConformanceInKernel(t *testing.T) {
	needKernel(t)
	if testing.Short() {
		t.Skip("short: the suite runs in the heap")
	}
	pool := &xdptest.Pool{}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		k, err := pool.Take()
		if err != nil {
			t.Fatal(err)
		}
		return newSubject(t, &sampled{Dataplane: k, every: askEvery()})
	})
}

// TestConformanceInProgram runs the suite with the verdicts of an ordinary program.
func TestConformanceInProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the suite runs in the heap")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		p := plugintest.New(t, plugin.MemoryOptions{Lines: 1 << 18, Slots: 1 << 12, Flows: 256, PodTunnels: true})
		return newSubject(t, &sampled{Dataplane: p, every: askEvery()})
	})
}
