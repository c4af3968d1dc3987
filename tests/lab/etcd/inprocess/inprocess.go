// Package inprocess runs an etcd server inside a test, where the store need not fail: members that
// can fail are processes, and are in tests/lab/etcd.
package inprocess

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
)

// patience is how long a machine that is busy may take to elect the only member.
const patience = time.Minute

// Loopback is the address of clients where the store must be reached by network: any free port.
const Loopback = "http://127.0.0.1:0"

// Start starts an etcd that ends with the test. The test fails if etcd does not end cleanly.
// Without a log output in the configuration, etcd logs nothing.
func Start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := embedded.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
