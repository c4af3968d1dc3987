package xdp

import (
	"log/slog"
	"sync"

	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// reclaimerState is the state of a reclaimer.
type reclaimerState uint8

const (
	reclaimerIdle    reclaimerState = iota
	reclaimerWaiting                // a goroutine waits for a grace period
	reclaimerClosed                 // it starts no grace period any more
)

// reclaimer waits until no packet can read retired memory. At most one grace period runs at a time;
// it covers everything that was queued when it began.
type reclaimer struct {
	mu      sync.Mutex
	state   reclaimerState
	queued  []compile.Retired
	elapsed []compile.Retired
	idle    sync.WaitGroup
}

// add queues retired memory for a grace period. Another goroutine calls the given function, which
// waits for the end of the grace period.
func (g *reclaimer) add(x compile.Retired, grace func() error, log *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.Empty() || g.state == reclaimerClosed {
		return
	}
	g.queued = append(g.queued, x)
	if g.state == reclaimerIdle {
		g.state = reclaimerWaiting
		g.idle.Add(1)
		go g.run(grace, log)
	}
}

// next returns what is queued. If that is nothing the reclaimer becomes idle.
func (g *reclaimer) next() []compile.Retired {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := g.queued
	g.queued = nil
	if len(batch) == 0 && g.state == reclaimerWaiting {
		g.state = reclaimerIdle
	}
	return batch
}

// run waits for grace periods until nothing is queued.
func (g *reclaimer) run(grace func() error, log *slog.Logger) {
	defer g.idle.Done()
	for batch := g.next(); len(batch) > 0; batch = g.next() {
		if err := grace(); err != nil {
			log.Warn("retired policy memory is not reused: waiting for packets in flight failed", "error", err)
			continue
		}
		g.mu.Lock()
		g.elapsed = append(g.elapsed, batch...)
		g.mu.Unlock()
	}
}

// takeReleasable returns what may be released now.
func (g *reclaimer) takeReleasable() []compile.Retired {
	g.mu.Lock()
	defer g.mu.Unlock()
	over := g.elapsed
	g.elapsed = nil
	return over
}

// wait returns when no grace period runs.
func (g *reclaimer) wait() { g.idle.Wait() }

// close waits for the running grace period, and starts no others.
func (g *reclaimer) close() {
	g.mu.Lock()
	g.state = reclaimerClosed
	g.mu.Unlock()
	g.wait()
}
