package datasync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// bench runs a watcher until it is stopped.
func bench(b *testing.B, cfg datasync.Config) (*datasync.Watcher, func()) {
	cfg.Store = marked.Store(cfg.Store)
	w := datasync.New(cfg)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return w, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	}
}

// BenchmarkSnapshotFromEtcd measures from the start of a watcher until the consumer has everything:
// read over loopback, decode, hand over.
func BenchmarkSnapshotFromEtcd(b *testing.B) {
	s := inprocess.Start(b, embedded.Config{ClientURL: inprocess.Loopback})
	const n = 10_000
	write(b, s.Client(), pods(n, "n1"))
	client := dial(b, s)
	b.ReportAllocs()
	for b.Loop() {
		w, stop := bench(b, datasync.Config{Store: client, Log: quiet})
		changes, err := w.Next(b.Context())
		if err != nil || len(changes.Deltas) != n {
			b.Fatalf("%d deltas: %v", len(changes.Deltas), err)
		}
		stop()
	}
}

// BenchmarkDeltasFromEtcd measures the transfer of 100 changed pods from a writer through etcd to
// the consumer.
func BenchmarkDeltasFromEtcd(b *testing.B) {
	s := inprocess.Start(b, embedded.Config{ClientURL: inprocess.Loopback})
	writer := dial(b, s)
	rounds := [][]model.Entry{entriesOf(b, pods(100, "n1")), entriesOf(b, pods(100, "n2"))}
	writeRaw(b, writer, rounds[1])
	w, stop := bench(b, datasync.Config{Store: dial(b, s), Log: quiet})
	if _, err := w.Next(b.Context()); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		writeRaw(b, writer, rounds[i%2])
		for n := 0; n < 100; {
			changes, err := w.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			n += len(changes.Deltas)
		}
	}
	stop()
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "deltas/s")
}

// BenchmarkResync measures the work of the watcher alone, from entries to changes.
func BenchmarkResync(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		entries := entriesOf(b, pods(n, "n1"))
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			again := make(chan struct{})
			s := &memory{entries: entries, again: again}
			w, stop := bench(b, datasync.Config{Store: s, Log: quiet, MinBackoff: 1, MaxBackoff: 1})
			b.ReportAllocs()
			for b.Loop() {
				changes, err := w.Next(b.Context())
				if err != nil || len(changes.Deltas) != n {
					b.Fatalf("%d deltas: %v", len(changes.Deltas), err)
				}
				again <- struct{}{}
			}
			stop()
		})
	}
}

// memory holds its entries in memory and ends a watch on request.
type memory struct {
	entries []model.Entry
	again   <-chan struct{}
}

func (m *memory) List(context.Context, string) ([]model.Entry, int64, error) {
	return m.entries, 1, nil
}

func (m *memory) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	select {
	case <-m.again:
		return context.Canceled
	case <-ctx.Done():
		return ctx.Err()
	}
}
