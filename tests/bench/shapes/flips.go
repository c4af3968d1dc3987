package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/shapes"
)

// flips is a source that deletes and adds the policies of a tenant whenever it is asked: the engine
// never waits. What another tenant changes comes with the next flip, as it does from a watch that
// merges what is pending.
type flips struct {
	policies, gone model.Changes

	mu       sync.Mutex
	revision int64
	there    bool
	first    *model.Changes
	others   []model.Delta
}

// Next implements policy.Source.
func (f *flips) Next(ctx context.Context) (model.Changes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return model.Changes{}, err
	}
	f.revision++
	if f.first != nil {
		c := *f.first
		c.Revision, f.first = f.revision, nil
		return c, nil
	}
	c := f.policies
	if f.there {
		c = f.gone
	}
	c.Deltas, c.Revision = slices.Concat(c.Deltas, f.others), f.revision
	f.there, f.others = !f.there, nil
	return c, nil
}

func (f *flips) change(c model.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others = append(f.others, c.Deltas...)
}

// flipsRow measures one shape.
func flipsRow(s shapes.Shape, n int, o options) string {
	var took []time.Duration
	if err := decoded(s, n, o, &took); err != nil || len(took) == 0 {
		return fmt.Sprintf("| %s | %d | | not done: %v |", s.Name, n, err)
	}
	slices.Sort(took)
	return fmt.Sprintf("| %s | %d | %d | %d ms | %d ms |", s.Name, n, len(took), took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds())
}

// underFlips returns how long policies of another tenant took to be enforced while the policies of a
// tenant were deleted and added all the time.
func underFlips(objects []any, o options) (took []time.Duration, err error) {
	target, done, err := newRenderer(o.renderer, o.memory)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	rendered := make(chan bool, 1000) // whether the other tenant's pod is isolated now
	for i, t := range target {
		target[i] = &witness{Renderer: t, longest: new(atomic.Int64), enforced: func(isolated bool) { rendered <- isolated }}
	}
	f := &flips{}
	isPolicy := func(o any) bool { _, pod := o.(*corev1.Pod); return !pod }
	pods, e1 := changes(append(slices.DeleteFunc(slices.Clone(objects), isPolicy), shapes.Bystander()), true, false)
	add, e2 := changes([]any{shapes.Bystanding()}, false, false)
	remove, e3 := changes([]any{shapes.Bystanding()}, false, true)
	var e4, e5 error
	f.first = &pods
	f.policies, e4 = changes(shapes.Policies(objects), false, false)
	f.gone, e5 = changes(shapes.Policies(objects), false, true)
	p := policy.New(policy.Deps{Node: shapes.Node, Source: f, Renderers: target, ApplyTimeout: time.Hour})
	if err := errors.Join(e1, e2, e3, e4, e5, p.Init(), p.AfterInit()); err != nil {
		return nil, err
	}
	for end := time.Now().Add(o.flips); time.Now().Before(end); {
		for _, isolated := range []bool{true, false} {
			began := time.Now()
			if isolated {
				f.change(add)
			} else {
				f.change(remove)
			}
			for last := !isolated; last != isolated; {
				select {
				case last = <-rendered:
				case <-time.After(o.limit):
					return took, errors.Join(fmt.Errorf("another tenant's policy is not enforced after %s", o.limit), p.Close())
				}
			}
			took = append(took, time.Since(began))
		}
	}
	return took, p.Close()
}
