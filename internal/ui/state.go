package ui

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/analysis/explain"
)

// cache keeps the state for a moment: a page asks for several things at once.
type cache struct {
	read func(context.Context) (explain.Manifests, error)

	mu    sync.Mutex
	at    time.Time
	state explain.Manifests
}

// get returns a state that is at most as old as fresh.
func (c *cache) get(ctx context.Context) (explain.Manifests, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < fresh {
		return c.state, nil
	}
	state, err := c.read(ctx)
	if err == nil {
		c.state, c.at = state, time.Now()
	}
	return state, err
}
