package xdp

import (
	"log/slog"
	"sync"

	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// graces waits until no packet reads what was retired. At most one wait runs at a time; it
// is for everything that was there when it began.
type graces struct {
	mu      sync.Mutex
	queued  []compile.Retired
	over    []compile.Retired
	running bool
	idle    sync.WaitGroup
}

// add has grace called once more, by another goroutine.
func (g *graces) add(x compile.Retired, grace func() error, log *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(g.queued, x)
	if !g.running {
		g.running = true
		g.idle.Add(1)
		go g.run(grace, log)
	}
}

// run waits as long as something is queued.
func (g *graces) run(grace func() error, log *slog.Logger) {
	defer g.idle.Done()
	for {
		g.mu.Lock()
		batch := g.queued
		g.queued = nil
		if g.running = len(batch) > 0; !g.running {
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
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
func (g *graces) take() []compile.Retired {
	g.mu.Lock()
	defer g.mu.Unlock()
	over := g.over
	g.over = nil
	return over
}

// wait returns when nothing is waited for.
func (g *graces) wait() { g.idle.Wait() }
