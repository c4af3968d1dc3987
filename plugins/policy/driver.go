package policy

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// driver runs the steps of an engine and supplies its clock.
type driver struct {
	engine *engine
	watch  stopwatch
	// do runs the work of renderers and returns its error.
	do func(ctx context.Context, work func(context.Context) error) error
}

// newDriver returns a driver with a new engine. With ended, steps do not wait for renderers that
// need long: it is called when one has done its work.
func newDriver(d *Deps, b *board, do func(context.Context, func(context.Context) error) error, ended func()) (*driver, error) {
	if err := d.complete(); err != nil {
		return nil, err
	}
	r := &driver{do: do, watch: stopwatch{tell: d.Observer.Stage}}
	r.engine = newEngine(time.Now(), *d, b, r.watch.passed, ended)
	return r, nil
}

// apply, retry and recommit call the engine's methods and run the returned steps to completion.
// Their errors name the failed renderers.
func (r *driver) apply(ctx context.Context, changes model.Changes, prompted bool) error {
	r.watch.start()
	return r.run(ctx, r.engine.apply(time.Now(), changes, prompted))
}

func (r *driver) retry(ctx context.Context) error {
	r.watch.start()
	return r.run(ctx, r.engine.retry(time.Now()))
}

func (r *driver) recommit(ctx context.Context) error {
	r.watch.start()
	return r.run(ctx, r.engine.recommit(time.Now()))
}

func (r *driver) run(ctx context.Context, s step) error {
	if s.work == nil {
		return ctx.Err()
	}
	err := r.work(ctx, s)
	o := outcome{time.Now(), err, ctx.Err() != nil}
	if s.quarantined != nil {
		s.quarantined(o)
	} else {
		r.engine.finish(o)
	}
	return err
}

// work runs the work of a step.
func (r *driver) work(ctx context.Context, s step) error {
	if s.brief {
		return s.work(ctx)
	}
	return r.do(ctx, s.work)
}

// stopwatch measures the duration of stages.
type stopwatch struct {
	last time.Time
	tell func(Stage, time.Duration) // nil disables it
}

func (w *stopwatch) start() { w.passed("") }

// passed reports the time since the last stage.
func (w *stopwatch) passed(s Stage) {
	if w.tell == nil {
		return
	}
	now := time.Now()
	if s != "" {
		w.tell(s, now.Sub(w.last))
	}
	w.last = now
}
