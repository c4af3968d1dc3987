package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/tests/conformance"
	"github.com/sluice-net/sluice/tests/conformance/faults"
	"github.com/sluice-net/sluice/tests/conformance/replay"
)

// workers is how many measurements run at once.
const workers = 2

// measurement is what is measured, and what came out.
type measurement struct {
	suites  []suite
	kinds   []replay.Kind
	faults  []faults.Fault
	options replay.Options
	random  random

	results   []replay.Result // by suite, subject, addressing
	noticed   []notice        // by fault
	scenarios map[string][]string
}

// random is how faults are looked for in random clusters.
type random struct {
	sequences    uint64
	steps, flows int
}

// notice says where a fault is noticed.
type notice struct {
	recorded []int // cases by suite, with the addresses that were recorded
	both     []int // the same with both families
	random   int   // sequences of random clusters
}

// public reports whether some public suite notices the fault.
func (n notice) public() bool {
	for _, cases := range n.recorded {
		if cases > 0 {
			return true
		}
	}
	return false
}

// run measures everything, and reports how long each part took.
func (m *measurement) run(ctx context.Context, progress io.Writer) error {
	p := &progressLog{w: progress, total: len(m.suites)*len(m.kinds)*len(conformance.Addressings) + len(m.faults)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	m.results = make([]replay.Result, len(m.suites)*len(m.kinds)*len(conformance.Addressings))
	i := 0
	for _, s := range m.suites {
		for _, k := range m.kinds {
			for _, a := range conformance.Addressings {
				into := &m.results[i]
				i++
				group.Go(func() (err error) {
					defer p.done(time.Now(), func() string { return into.Summary() })
					*into, err = replay.Run(ctx, s.name, s.Suite, a, k, m.options)
					return err
				})
			}
		}
	}
	m.noticed = make([]notice, len(m.faults))
	for i, f := range m.faults {
		group.Go(func() (err error) {
			defer p.done(time.Now(), func() string { return fmt.Sprintf("fault %q: %+v", f.Name, m.noticed[i]) })
			m.noticed[i], err = m.notice(ctx, f)
			return err
		})
	}
	return group.Wait()
}

// notice looks for a fault in all suites and in random clusters.
func (m *measurement) notice(ctx context.Context, f faults.Fault) (notice, error) {
	var n notice
	for _, s := range m.suites {
		for i, into := range []*[]int{&n.recorded, &n.both} {
			cases, err := f.Noticed(ctx, s.Suite, conformance.Addressings[2*i], replay.Options{})
			if err != nil {
				return n, err
			}
			*into = append(*into, cases)
		}
	}
	n.random = f.Random(m.random.sequences, m.random.steps, m.random.flows)
	return n, nil
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

func (p *progressLog) done(since time.Time, what func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts++
	_, _ = fmt.Fprintf(p.w, "[%d/%d] %5.1fs %s\n", p.parts, p.total, time.Since(since).Seconds(), what()) // progress is only informative
}
