package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/tests/differential"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
)

const progressEvery = 5 * time.Second

// soak plays sequences with several workers.
type soak struct {
	settings
	kinds []backends.Kind
	start time.Time
	stop  context.CancelFunc // ends all workers

	mu          sync.Mutex
	next        int // sequence that no worker has yet
	counts      differential.Counts
	divergences []divergence
}

// run plays all sequences and returns when they are done, when too many diverged, or
// with the context.
func (s *soak) run(ctx context.Context, progress io.Writer) report {
	s.start = time.Now()
	s.counts.Add(differential.Counts{})
	_, _ = fmt.Fprintf(progress, "%d sequences on %s with %d workers, the first seed is %d\n", s.sequences, s.kind, s.workers, s.seed)
	var workers sync.WaitGroup
	playing, stop := context.WithCancel(ctx)
	defer stop()
	s.stop = stop
	for range s.workers {
		workers.Go(func() { s.work(ctx, playing) })
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = fmt.Fprintln(progress, s.progress())
		case <-done:
			return s.report(ctx.Err() != nil)
		}
	}
}

// work plays one sequence after the other. A divergence is minimised even when playing
// has ended because of another one.
func (s *soak) work(ctx, playing context.Context) {
	for {
		s.mu.Lock()
		i := s.next
		if i == s.sequences || playing.Err() != nil {
			s.mu.Unlock()
			return
		}
		s.next++
		s.mu.Unlock()
		s.play(ctx, playing, s.seed+uint64(i))
	}
}

// options are those of a seed, which is enough to play its sequence again.
func (s *soak) options(seed uint64) differential.Options {
	return differential.Options{Kind: s.kinds[seed%uint64(len(s.kinds))], Flows: s.flows, Stride: s.stride}
}

// play plays the sequence of a seed. One that was interrupted does not count.
func (s *soak) play(ctx, playing context.Context, seed uint64) {
	played, counts, err := differential.PlaySeed(playing, s.options(seed), seed)
	if playing.Err() != nil {
		return
	}
	s.mu.Lock()
	s.counts.Add(counts)
	s.mu.Unlock()
	if err != nil {
		s.diverged(ctx, seed, played, err)
	}
}

// diverged keeps what does not hold, with a minimal case. An error that is no
// divergence is kept as it is.
func (s *soak) diverged(ctx context.Context, seed uint64, played differential.Case, err error) {
	s.mu.Lock()
	s.divergences = append(s.divergences, divergence{Seed: seed, Check: "error", Text: err.Error(), Case: played.String()})
	mine := len(s.divergences) - 1
	if len(s.divergences) >= s.most {
		s.stop()
	}
	s.mu.Unlock()
	d := harness.ViolationOf(err)
	if d == nil {
		return
	}
	small, d := differential.Minimise(ctx, played, s.options(seed), d, s.minimise)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.divergences[mine] = divergence{Seed: seed, Check: string(d.Invariant), Text: d.Text, Case: small.String(), Events: len(small.Events)}
}

// progress returns the progress in one line.
func (s *soak) progress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := time.Since(s.start).Seconds()
	rate := float64(s.counts.Sequences) / seconds
	left := "?"
	if rate > 0 {
		left = time.Duration(float64(s.sequences-s.counts.Sequences) / rate * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%d of %d sequences, %d events, %d verdicts compared, %d divergences, %.1f sequences per second, %s left",
		s.counts.Sequences, s.sequences, s.counts.Events, s.counts.Verdicts, len(s.divergences), rate, left)
}

func (s *soak) report(stopped bool) report {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.divergences, func(a, b divergence) int { return int(int64(a.Seed) - int64(b.Seed)) })
	return report{
		Kind: s.kind, Seed: s.seed, Workers: s.workers, Flows: s.flows, Stride: s.stride, Asked: s.sequences, Seconds: time.Since(s.start).Seconds(),
		Interrupted: stopped && s.counts.Sequences < s.sequences, Counts: s.counts, Divergences: s.divergences,
	}
}
