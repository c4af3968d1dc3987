package configurator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/renderer"
)

// RendererStatus says how a renderer is doing.
type RendererStatus struct {
	Name     string
	InSync   bool   // its newest Commit worked; false before the first
	Err      error  // of its newest Commit
	Commits  uint64 // that worked
	Failures uint64
}

// target is a renderer and what became of it.
type target struct {
	renderer   renderer.Renderer
	status     RendererStatus
	defers     bool                  // a part of what was committed: renderer.ErrDeferred
	since      time.Time             // when the oldest Commit began of which it defers a part; zero when it does not say
	unenforced []renderer.Unenforced // as the renderer said after its newest Commit
}

// InSync reports whether no pod waits, and no renderer has failed in its newest Commit, or deferred a
// part of it. It is true before the first.
func (c *Configurator) InSync() bool {
	return len(c.waiting) == 0 && c.Err() == nil && !slices.ContainsFunc(c.targets, func(t *target) bool { return t.defers })
}

// EnforcedUntil returns a time before which every Commit that ended is wholly in force, while no
// renderer fails and some defer. It is false when that is not known.
func (c *Configurator) EnforcedUntil() (until time.Time, known bool) {
	if c.Err() != nil {
		return until, false
	}
	for _, w := range c.waiting {
		if until.IsZero() || w.since.Before(until) {
			until = w.since
		}
	}
	for _, t := range c.targets {
		if t.defers && (until.IsZero() || t.since.Before(until)) {
			until = t.since
		}
		if t.defers && t.since.IsZero() {
			return until, false
		}
	}
	return until, !until.IsZero()
}

// Err joins the errors of the newest Commit of every renderer, each with its name.
func (c *Configurator) Err() error {
	var errs []error
	for _, t := range c.targets {
		errs = append(errs, t.status.Err)
	}
	return errors.Join(errs...)
}

// Renderers returns the status of every renderer, in the order of Options.
func (c *Configurator) Renderers() []RendererStatus {
	status := make([]RendererStatus, len(c.targets))
	for i, t := range c.targets {
		status[i] = t.status
	}
	return status
}

// OwnName stands for the configurator where renderers are named.
const OwnName = "configurator"

// Unenforced is what a renderer's stack cannot enforce.
type Unenforced struct {
	Renderer string
	Rules    []renderer.Unenforced // shared; the same slice as long as nothing is different
}

// Unenforced returns what the configurator itself refuses, under its own name, and
// what the renderers that can say it said after their newest Commit, in the order of
// Options.
func (c *Configurator) Unenforced() []Unenforced {
	out := []Unenforced{{OwnName, c.interner.unenforced()}}
	for _, t := range c.targets {
		if _, ok := renderer.As[renderer.Reporter](t.renderer); ok {
			out = append(out, Unenforced{t.status.Name, t.unenforced})
		}
	}
	return out
}

// fanOut commits the transactions of the renderers that have something to do. A
// panic in one of them is not recovered: it ends the process rather than leave a
// stack that nobody looks after.
func (c *Configurator) fanOut(ctx context.Context, txns []renderer.Txn, told bool) error {
	var due []int
	for i, t := range c.targets {
		if told || t.status.Err != nil {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	for _, i := range due[1:] {
		wg.Go(func() { c.targets[i].commit(ctx, txns[i]) })
	}
	c.targets[due[0]].commit(ctx, txns[due[0]])
	wg.Wait()
	return c.Err() // who is not due has not failed
}

// commit runs in a goroutine of its own and touches nothing but its target.
func (t *target) commit(ctx context.Context, txn renderer.Txn) {
	err := txn.Commit(ctx)
	t.since = time.Time{}
	if t.defers = errors.Is(err, renderer.ErrDeferred); t.defers {
		if d, ok := errors.AsType[*renderer.Deferred](err); ok {
			t.since = d.Since
		}
		err = nil
	}
	if err != nil {
		t.status.Failures++
		t.status.Err = fmt.Errorf("renderer %s: %w", t.status.Name, err)
	} else {
		t.status.Commits++
		t.status.Err = nil
	}
	t.status.InSync = err == nil
	if r, ok := renderer.As[renderer.Reporter](t.renderer); ok {
		t.unenforced = r.Unenforced()
	}
}
