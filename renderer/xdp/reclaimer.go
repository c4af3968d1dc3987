package xdp

import (
	"log/slog"
	"sync"

	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// reclaimerState is whether a reclaimer waits.
type reclaimerState uint8

const (
	reclaimerIdle    reclaimerState = iota
	reclaimerWaiting                // a goroutine waits
	reclaimerClosed                 // nothing is waited for any more
)

// reclaimer waits until no packet reads what was retired. At most one wait runs at a time; it
// is for everything that was there when it began.
type reclaimer struct {
	mu     sync.Mutex
	state  reclaimerState
	queued []compile.Retired
	over   []compile.Retired
	idle   sync.WaitGroup
}

// add has grace called once more, by another goroutine.
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

// next returns what is queued; the reclaimer is idle if that is nothing.
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

// run waits as long as something is queued.
func (g *reclaimer) run(grace func() error, log *slog.Logger) {
	defer g.idle.Done()
	for batch := g.next(); len(batch) > 0; batch = g.next() {
		if err := grace(); err != nil {
			log.Warn("memory is not used again", "error", err)
			continue
		}
		g.mu.Lock()
		g.over = append(g.over, batch...)
		g.mu.Unlock()
	}
}

// take returns what may be released.
func (g *reclaimer) take() []compile.Retired {
	g.mu.Lock()
	defer g.mu.Unlock()
	over := g.over
	g.over = nil
	return over
}

// wait returns when nothing is waited for.
func (g *reclaimer) wait() { g.idle.Wait() }

// close waits a last time.
func (g *reclaimer) close() {
	g.mu.Lock()
	g.state = reclaimerClosed
	g.mu.Unlock()
	g.wait()
}
