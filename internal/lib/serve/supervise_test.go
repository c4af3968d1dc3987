package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// manager is what listens where a service manager does.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func hear(t *testing.T, c *net.UnixConn, patience time.Duration) string {
	t.Helper()
	b := make([]byte, 100)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestSuperviseNotifiesServiceManager(t *testing.T) {
	c := manager(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(30_000))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	var alive atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Supervise(ctx, alive.Load, slog.New(slog.DiscardHandler)) }()
	if got := hear(t, c, time.Minute); got != "READY=1" {
		t.Errorf("it says %q first", got)
	}
	if got := hear(t, c, 100*time.Millisecond); got != "" {
		t.Errorf("it says %q while it is not alive", got)
	}
	alive.Store(true)
	for range 3 {
		if got := hear(t, c, time.Minute); got != "WATCHDOG=1" {
			t.Errorf("it says %q while it is alive", got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	last := ""
	for said := hear(t, c, time.Minute); said != ""; said = hear(t, c, time.Millisecond) {
		last = said
	}
	if last != "STOPPING=1" {
		t.Errorf("it says %q last", last)
	}
}

func TestSuperviseWithoutServiceManagerWaits(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Supervise(ctx, nil, nil); err != nil {
		t.Error(err)
	}
}
