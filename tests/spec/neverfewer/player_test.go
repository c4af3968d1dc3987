package neverfewer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// engine is the engine that a case drives. Nothing is tried again without a call.
type engine interface {
	// post passes changes on and does not wait for the renderer longer than the engine does.
	post(ctx context.Context, c model.Changes) error
	// settle waits until the renderer has done what it could, and returns an error if that failed.
	settle(ctx context.Context) error
	// retry lets a renderer that failed try again, which settle waits for.
	retry(ctx context.Context)
	close() error
}

// handler is the engine of a host with its own loop.
type handler struct {
	*policy.Handler
	err error
}

func newHandler(d policy.Deps) (engine, error) {
	h := &handler{Handler: policy.NewHandler(d)}
	return h, h.Init()
}

func (h *handler) post(ctx context.Context, c model.Changes) error {
	if c.Resync {
		h.err = h.Resync(ctx, c.Deltas)
	} else {
		h.err = h.Update(ctx, c.Deltas)
	}
	return nil
}

func (h *handler) settle(context.Context) error { return h.err }
func (h *handler) retry(ctx context.Context)    { h.err = h.Retry(ctx) }
func (h *handler) close() error                 { return h.Close() }

// loop is the engine of an agent.
type loop struct {
	*policy.Plugin
	revision int64
	failures uint64 // that are known
}

func newLoop(d policy.Deps) (engine, error) {
	l := &loop{Plugin: policy.New(d)}
	if err := l.Init(); err != nil {
		return nil, err
	}
	return l, l.AfterInit()
}

func (l *loop) post(ctx context.Context, c model.Changes) error {
	over, cancel := context.WithCancel(ctx)
	cancel()
	_ = l.Apply(over, c) // it is not lost
	l.revision++
	return l.until(ctx, func(s policy.Status) bool { return s.Seen >= l.revision })
}

func (l *loop) settle(ctx context.Context) error {
	var failed error
	err := l.until(ctx, func(s policy.Status) bool {
		r := s.Renderers[0]
		if s.Seen >= l.revision && s.BusySince.IsZero() && r.Error != "" && r.Failures > l.failures {
			failed, l.failures = errors.New(r.Error), r.Failures
			return true
		}
		return s.InSync() && s.Revision >= l.revision
	})
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	return l.WaitIdle(ctx, l.revision)
}

// until waits for a status.
func (l *loop) until(ctx context.Context, is func(policy.Status) bool) error {
	for {
		s, changed := l.Watch()
		if is(s) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %+v", ctx.Err(), s)
		}
	}
}

func (l *loop) retry(context.Context) { l.Prompt() }
func (l *loop) close() error          { return l.Close() }

// player plays a case.
type player struct {
	law     *law
	subject *subject
	make    func() (engine, error)
	engine  engine
	state   cluster.State
	objects harness.Objects
	stopped int // for how many more steps the renderer stands still
}

// locked calls f with the lock.
func (l *law) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// play lets a step happen.
func (p *player) play(ctx context.Context, s Step) error {
	old := p.objects
	p.state = cluster.Edited(p.state, s.Edits)
	var err error
	if p.objects, err = harness.Reflect(filled(p.state)); err != nil {
		return err
	}
	state := specified(oracle.New(p.state), p.law.flows)
	p.law.locked(func() { p.law.states = append(p.law.states, state) })
	changes := model.Changes{Deltas: p.objects.Since(old, s.Seed)}
	if p.stopped > 0 {
		if err := p.engine.post(ctx, changes); err != nil {
			return err
		}
		if p.stopped--; p.stopped > 0 {
			return nil
		}
		return p.goOnNow(ctx)
	}
	if s.Restart && p.subject.restart != nil || p.engine == nil {
		if err := p.restart(); err != nil {
			return err
		}
		changes = p.objects.Changes(true, s.Seed)
	}
	return p.enforce(ctx, s, changes)
}

// enforce has a step enforced, some calls of which fail.
func (p *player) enforce(ctx context.Context, s Step, changes model.Changes) error {
	for i, n := range append(slices.Clone(s.Fail), 0) {
		p.subject.fail(n)
		if i > 0 {
			p.engine.retry(ctx)
		} else if err := p.begin(ctx, s, changes); err != nil || p.stopped > 0 {
			return err
		}
		err := p.engine.settle(ctx)
		p.subject.fail(0)
		switch {
		case err == nil:
			return p.done()
		case ctx.Err() != nil:
			return err
		}
		p.law.locked(func() {
			p.law.counts.failures++
			p.law.look(fmt.Sprintf("attempt %d failed (%v)", i+1, err))
		})
		if n != 0 && i+1 == len(s.Fail) && s.Leave {
			return nil
		}
	}
	return p.converge(ctx)
}

// begin passes a step on. The renderer may stand still then.
func (p *player) begin(ctx context.Context, s Step, changes model.Changes) error {
	_, isLoop := p.engine.(*loop)
	stops := isLoop && s.Stop > 0
	if stops {
		p.law.locked(func() { p.law.stopAt = s.Stop })
	}
	if err := p.engine.post(ctx, changes); err != nil || !stops {
		return err
	}
	settled := make(chan error, 1)
	over, cancel := context.WithCancel(ctx)
	go func() { settled <- p.engine.settle(over) }()
	select {
	case <-p.law.stop:
		p.stopped = s.Meanwhile
		cancel()
		<-settled //nolint:errcheck // the wait was ended
		return nil
	case err := <-settled:
		cancel()
		p.law.locked(func() { p.law.stopAt = 0 })
		if err != nil {
			p.law.locked(func() { p.law.counts.failures++ })
			p.engine.retry(ctx)
		}
		return nil
	}
}

// goOn ends that the renderer stands still.
func (p *player) goOn(ctx context.Context) error {
	if p.stopped == 0 {
		return nil
	}
	p.stopped = 0
	return p.goOnNow(ctx)
}

func (p *player) goOnNow(ctx context.Context) error {
	p.law.goOn <- struct{}{}
	if err := p.engine.settle(ctx); err == nil {
		return p.done()
	}
	p.subject.fail(0)
	return p.converge(ctx)
}

// triesToConverge is how often what no call fails of is tried: one attempt must do, unless a
// connection has to come up again.
const triesToConverge = 5

// converge has enforced what failed.
func (p *player) converge(ctx context.Context) (err error) {
	for range triesToConverge {
		p.engine.retry(ctx)
		if err = p.engine.settle(ctx); err == nil {
			return p.done()
		}
		if ctx.Err() != nil {
			return err
		}
	}
	p.law.locked(func() {
		p.law.breaks(ofRenderer, "a retry", "it does not converge although no call fails: %v", err)
	})
	return nil
}

// done checks that what is enforced is the state of now.
func (p *player) done() error {
	p.law.locked(func() {
		p.law.states = p.law.states[len(p.law.states)-1:]
		p.law.compareWithStates(p.law.received[len(p.law.received)-1], "the step")
		p.law.look("the step")
	})
	return nil
}

// restart replaces the agent, which has forgotten everything. What it installed is still there.
func (p *player) restart() (err error) {
	if p.engine != nil {
		p.law.locked(func() { p.law.counts.restarts++ })
		if err := errors.Join(p.engine.close(), p.subject.restart()); err != nil {
			return err
		}
		p.law.Renderer = p.subject.renderer()
	}
	if p.engine, err = p.make(); err != nil {
		return err
	}
	if l, ok := p.engine.(*loop); ok {
		prompt := l.Prompt
		p.subject.prompt.Store(&prompt)
	}
	return nil
}

// end ends the engine. A renderer that stands still goes on.
func (p *player) end() error {
	if p.engine == nil {
		return nil
	}
	closed := make(chan error, 1)
	go func() { closed <- p.engine.close() }()
	for {
		select {
		case p.law.goOn <- struct{}{}:
		case err := <-closed:
			return err
		case <-time.After(patience):
			return errors.New("the engine does not end")
		}
	}
}
