package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// fill writes until the store takes no more, and returns what it answers then.
func fill(t *testing.T, s *embedded.Server, key func(i int) string) error {
	t.Helper()
	c := s.Client()
	for i := range 400 {
		err := c.Write(t.Context(), []model.Entry{{Key: key(i), Value: []byte(strings.Repeat("x", 1<<20-100))}}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

func TestServerGivesSpaceBack(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{Quota: 16 << 20})
	if err := fill(t, s, func(int) string { return "/same" }); err != nil && !strings.Contains(err.Error(), "space exceeded") {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := s.Client()
	for {
		err := c.Write(ctx, []model.Entry{{Key: "/a", Value: []byte("1")}}, nil)
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the store does not take writes again: %v", err)
		}
	}
}

func TestServerKeepsAlarmWhileContentFillsIt(t *testing.T) {
	var log strings.Builder
	s := inprocess.Start(t, embedded.Config{Quota: 16 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
	freed := 0 // how often there were free pages besides: on a slow machine there are more
	for ; ; freed++ {
		err := fill(t, s, func(i int) string { return strings.Repeat("k", i+1) + fmt.Sprint(freed) })
		if err == nil || !strings.Contains(err.Error(), "space exceeded") {
			t.Fatalf("the store was not filled: %v", err)
		}
		if err := s.GiveBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Client().Write(t.Context(), []model.Entry{{Key: "/a", Value: []byte("1")}}, nil); err != nil {
			break
		}
		if freed == 10 {
			t.Fatal("it takes writes although nothing can be given back")
		}
	}
	if err := s.Close(); err != nil { // its log is complete then
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "takes writes again"); n != freed {
		t.Errorf("it promised to take writes %d times, and took them %d times:\n%s", n, freed, log.String())
	}
}
