package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
)

func BenchmarkList(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			c := dial(b, server(b, embedded.Config{}).Endpoints()...)
			puts := entries("/l/", n)
			for i := range puts {
				puts[i].Value = make([]byte, 250)
			}
			write(b, c, puts)
			b.ReportAllocs()
			for b.Loop() {
				if got, _ := list(b, c, "/l/"); len(got) != n {
					b.Fatalf("%d keys", len(got))
				}
			}
		})
	}
}

// BenchmarkWriteToWatch measures the transfer of 100 keys from one client to another.
func BenchmarkWriteToWatch(b *testing.B) {
	s := server(b, embedded.Config{})
	writer, reader := dial(b, s.Endpoints()...), dial(b, s.Endpoints()...)
	_, revision := list(b, reader, "/w/")
	puts := entries("/w/", 100)
	seen := make(chan int, 1)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- reader.Watch(ctx, "/w/", revision+1, func(entries []model.Entry, _ int64) { seen <- len(entries) })
	}()
	for b.Loop() {
		write(b, writer, puts)
		for n := 0; n < len(puts); {
			n += <-seen
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
}
