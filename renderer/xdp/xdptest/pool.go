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

// Missing returns an error if this process cannot load programs into the kernel.
func Missing() error {
	if os.Getuid() != 0 || os.Getenv("SLUICE_NO_KERNEL") != "" { // SLUICE_NO_KERNEL: tests may be killed, and must leave nothing behind
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

// Pool reuses kernels that only answer queries, because loading programs takes a tenth of a second.
// It is safe for concurrent use.
type Pool struct {
	mu   sync.Mutex
	idle []*xdp.Kernel
	made int
}

// Pooled is a kernel that Close returns to its pool.
type Pooled struct {
	*xdp.Kernel
	pool *Pool
}

// Take returns an empty kernel.
func (p *Pool) Take() (*Pooled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 && p.made > 1 {
		k := p.idle[0]
		p.idle = p.idle[1:]
		return &Pooled{k, p}, nil
	}
	threshold := -(p.made & 1) // every other kernel always uses the recent-flow cache, so that tests take both paths
	p.made++
	k, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, PodTunnels: true, Flows: 256, FlowCacheThreshold: threshold, PolicyMaps: xdp.PolicyMaps{KeepSpare: true}})
	return &Pooled{k, p}, err
}

// Close closes the kernels that were returned to the pool.
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

// Grace returns at once: queries run one at a time, so no packet is in flight.
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
