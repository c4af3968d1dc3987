package differential

import (
	"context"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// faulty is a dataplane with a fault. What is nil works.
type faulty struct {
	backends.Backend
	backends.Stateful
	renderer renderer.Renderer

	verdict   func(api.Flow, api.Action) api.Action
	first     func(api.Flow, bool) bool
	reply     func(api.Flow, bool) bool
	installed func(string) string
	dangling  []string
	extra     atomic.Int64 // operations
	restarted int          // operations of a restart
}

func (b *faulty) Renderer() renderer.Renderer {
	if b.renderer != nil {
		return b.renderer
	}
	return b.Backend.Renderer()
}

func (b *faulty) Verdict(f api.Flow) api.Action {
	if b.verdict != nil {
		return b.verdict(f, b.Backend.Verdict(f))
	}
	return b.Backend.Verdict(f)
}

func (b *faulty) First(f api.Flow) bool {
	if b.first != nil {
		return b.first(f, b.Stateful.First(f))
	}
	return b.Stateful.First(f)
}

func (b *faulty) Reply(f api.Flow) bool {
	if b.reply != nil {
		return b.reply(f, b.Stateful.Reply(f))
	}
	return b.Stateful.Reply(f)
}

func (b *faulty) Installed() (string, error) {
	text, err := b.Backend.Installed()
	if b.installed != nil {
		text = b.installed(text)
	}
	return text, err
}

func (b *faulty) Dangling() []string { return append(b.Backend.Dangling(), b.dangling...) }
func (b *faulty) Operations() int    { return b.Backend.Operations() + int(b.extra.Load()) }

func (b *faulty) Restart() error {
	b.extra.Add(int64(b.restarted))
	return b.Backend.Restart()
}

// faultyRenderer does something else than its renderer.
type faultyRenderer struct {
	renderer.Renderer
	apply func(context.Context, renderer.Changes) error
}

func (r faultyRenderer) Apply(ctx context.Context, c renderer.Changes) error { return r.apply(ctx, c) }

// faultyKind returns a kind whose dataplanes have a fault.
func faultyKind(fault func(*faulty)) backends.Kind {
	kind := backends.All[0]
	return backends.Kind{Name: "faulty " + kind.Name, New: func(prompt func()) (backends.Backend, error) {
		s, err := kind.New(prompt)
		if err != nil {
			return nil, err
		}
		b := &faulty{Backend: s, Stateful: s.(backends.Stateful)}
		fault(b)
		return b, nil
	}}
}

// rendering makes a fault of a renderer one of its dataplane.
func rendering(apply func(ctx context.Context, b *faulty, r renderer.Renderer, c renderer.Changes) error) func(*faulty) {
	return func(b *faulty) {
		r := b.Backend.Renderer()
		b.renderer = faultyRenderer{r, func(ctx context.Context, c renderer.Changes) error { return apply(ctx, b, r, c) }}
	}
}

// told makes a fault of what a renderer is told one of its dataplane.
func told(edit renderertest.Edit) func(*faulty) {
	return func(b *faulty) { b.renderer = renderertest.Edited(b.Backend.Renderer(), edit) }
}
