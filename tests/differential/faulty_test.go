package differential

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/harness/backends"
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

// faultyRenderer passes a changed state to the renderer of a backend.
type faultyRenderer struct {
	renderer.Renderer
	txn func(renderer.Txn, bool) renderer.Txn
}

func (r faultyRenderer) NewTxn(resync bool) renderer.Txn {
	return r.txn(r.Renderer.NewTxn(resync), resync)
}

// faultyTxn is a transaction that does not pass everything on. A nil field changes nothing.
type faultyTxn struct {
	renderer.Txn
	updateSet func(id api.SetID, added, removed []netip.Prefix)
	remove    func(api.PodID)
	commit    func(context.Context) error
}

func (t faultyTxn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if t.updateSet != nil {
		t.updateSet(id, added, removed)
		return
	}
	t.Txn.UpdateSet(id, added, removed)
}

func (t faultyTxn) Remove(pod api.PodID) {
	if t.remove != nil {
		t.remove(pod)
		return
	}
	t.Txn.Remove(pod)
}

func (t faultyTxn) Commit(ctx context.Context) error {
	if t.commit != nil {
		return t.commit(ctx)
	}
	return t.Txn.Commit(ctx)
}

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
func rendering(txn func(*faulty, renderer.Txn, bool) renderer.Txn) func(*faulty) {
	return func(b *faulty) {
		b.renderer = faultyRenderer{b.Backend.Renderer(), func(t renderer.Txn, resync bool) renderer.Txn { return txn(b, t, resync) }}
	}
}
