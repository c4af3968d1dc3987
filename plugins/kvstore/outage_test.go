package kvstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// lines is a log of which a test counts the lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// take returns the lines since it was called last.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return slices.DeleteFunc(strings.Split(l.text.String(), "\n"), func(s string) bool { return s == "" })
}

// wantLines checks how many lines there are, and what each says.
func (l *lines) wantLines(t *testing.T, n int, each ...string) {
	t.Helper()
	got := l.take()
	if len(got) != n {
		t.Fatalf("there are %d lines, want %d:\n%s", len(got), n, strings.Join(got, "\n"))
	}
	for _, line := range got {
		for _, text := range each {
			if !strings.Contains(line, text) {
				t.Errorf("%q does not say %q", line, text)
			}
		}
	}
}

func TestOutageIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		o := &outage{log: l.log(), name: "a:1, b:2"}
		o.ends()
		why := errors.New("connection refused")
		// fail simulates several callers without an answer for a time, each failing every half a
		// second.
		fail := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				began := time.Now()
				time.Sleep(outageAfter)
				for range 4 {
					o.begins(began, why)
				}
			}
		}
		fail(time.Second)
		l.wantLines(t, 1, "level=WARN", `endpoints="a:1, b:2"`, "connection refused")
		fail(50 * time.Second)
		l.wantLines(t, 0)
		fail(2 * time.Minute)
		l.wantLines(t, 2, "level=WARN")
		o.ends()
		o.ends()
		l.wantLines(t, 1, "level=INFO", "answers again", "after=2m50.5s")
		fail(time.Second)
		l.wantLines(t, 1, "level=WARN")
	})
}

func TestOutageOfMomentIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		o := &outage{log: l.log()}
		began := time.Now()
		time.Sleep(outageAfter / 2)
		o.begins(began, errors.New("no"))
		if !o.covers(time.Now()) {
			t.Error("an outage that has begun is somebody else's to log")
		}
		o.ends()
		l.wantLines(t, 0)
		if o.covers(time.Now()) {
			t.Error("an outage that was not logged counts as logged")
		}

		// A call that fails although a later one was answered.
		began = time.Now()
		time.Sleep(outageAfter)
		o.ends()
		time.Sleep(outageAfter)
		if o.begins(began, errors.New("no")); o.covers(time.Now()) {
			t.Error("a store that answers others is away")
		}
		l.wantLines(t, 0)
	})
}

// TestClientLogsOutageOnce runs several calls and watches of a client without a server,
// and then starts one.
func TestClientLogsOutageOnce(t *testing.T) {
	address := programs.FreeAddress(t)
	var text lines
	c, err := Open(Config{Endpoints: []string{address}, CallTimeout: time.Second}, text.log())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			_, _, err := c.List(context.Background(), "/")
			var by interface{ Logged() bool }
			if !errors.Is(err, ErrUnavailable) || !errors.As(err, &by) || !by.Logged() {
				t.Errorf("list: %v, want that it does not answer, and was logged", err)
			}
		})
	}
	calls.Wait()
	text.wantLines(t, 1, "level=WARN", address, "connection refused")
}
