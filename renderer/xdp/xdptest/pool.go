package xdptest

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// Missing says why the kernel takes no programs from us; nil: it does.
func Missing() error {
	if os.Getuid() != 0 || os.Getenv("SLUICE_NO_KERNEL") != "" { // where tests are ended in their middle, nothing may be left
		return errors.New("not root: the kernel takes no programs from us")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("no memory may be locked: %w", err)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Errorf("the kernel takes no programs: %w", err)
	}
	return nil
}

// Pool has kernels that can only be asked, and that are used again, because loading programs
// takes a tenth of a second. It may be used by any number of goroutines.
type Pool struct {
	mu   sync.Mutex
	idle []*xdp.Kernel
	made int
}

// Pooled is a Plane in the kernel that Close gives back.
type Pooled struct {
	*xdp.Kernel
	pool *Pool
}

// Take returns a kernel in which nothing is.
func (p *Pool) Take() (*Pooled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 && p.made > 1 {
		k := p.idle[0]
		p.idle = p.idle[1:]
		return &Pooled{k, p}, nil
	}
	crowd := -(p.made & 1) // of every other kernel any flow is a crowd, so that both ways through the program are met
	p.made++
	k, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, PodTunnels: true, Flows: 256, FlowCacheThreshold: crowd, PolicyMaps: xdp.PolicyMaps{KeepSpare: true}})
	return &Pooled{k, p}, err
}

// Close ends the kernels that were given back.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, k := range p.idle {
		errs = append(errs, k.Close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// Grace returns at once: packets run when they are asked about, one by one.
func (p *Pooled) Grace() error { return nil }

// Close implements xdp.Dataplane.
func (p *Pooled) Close() error {
	if err := p.Reset(); err != nil {
		return errors.Join(err, p.Kernel.Close())
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.pool.idle = append(p.pool.idle, p.Kernel)
	return nil
}
