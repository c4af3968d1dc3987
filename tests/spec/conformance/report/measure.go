package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/tests/spec/conformance"
	"github.com/sluice-net/sluice/tests/spec/conformance/replay"
)

// workers is how many measurements run at once.
const workers = 2

// measurement is what is measured, and what came out.
type measurement struct {
	suites  []suite
	kinds   []replay.Kind
	options replay.Options

	results []replay.Result // by suite, subject, addressing
}

// run measures everything, and reports how long each part took.
func (m *measurement) run(ctx context.Context, progress io.Writer) error {
	m.results = make([]replay.Result, len(m.suites)*len(m.kinds)*len(conformance.Addressings))
	p := &progressLog{w: progress, total: len(m.results)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	i := 0
	for _, s := range m.suites {
		for _, k := range m.kinds {
			for _, a := range conformance.Addressings {
				into := &m.results[i]
				i++
				group.Go(func() (err error) {
					defer p.done(time.Now(), into)
					*into, err = replay.Run(ctx, s.name, s.Suite, a, k, m.options)
					return err
				})
			}
		}
	}
	return group.Wait()
}

// mismatches counts those of all results.
func (m *measurement) mismatches() int {
	n := 0
	for _, r := range m.results {
		n += r.Mismatches
	}
	return n
}

// progressLog reports what was done.
type progressLog struct {
	mu           sync.Mutex
	w            io.Writer
	parts, total int
}

func (p *progressLog) done(since time.Time, r *replay.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts++
	_, _ = fmt.Fprintf(p.w, "[%d/%d] %5.1fs %s\n", p.parts, p.total, time.Since(since).Seconds(), r.Summary()) // progress is only informative
}
