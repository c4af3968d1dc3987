package kvstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

const leaderKey = "/t/leader"

// lead returns where the next term of a client arrives.
func lead(ctx context.Context, c *kvstore.Client, who string, ttl time.Duration) <-chan *kvstore.Term {
	terms := make(chan *kvstore.Term, 1)
	go func() {
		if t, err := c.Lead(ctx, leaderKey, []byte(who), ttl); err == nil {
			terms <- t
		}
	}()
	return terms
}

func await(t *testing.T, terms <-chan *kvstore.Term) *kvstore.Term {
	t.Helper()
	select {
	case term := <-terms:
		return term
	case <-time.After(patience):
		t.Fatal("nobody leads")
		return nil
	}
}

func put(key string) []model.Entry { return []model.Entry{{Key: key, Value: []byte("1")}} }

func TestTermHasOneLeaderAndGuardsItsWrites(t *testing.T) {
	s := server(t, embedded.Config{})
	a, b := dial(t, s.Endpoints()...), dial(t, s.Endpoints()...)
	first := await(t, lead(t.Context(), a, "a", time.Minute))
	if err := first.Write(t.Context(), put("/t/1"), nil); err != nil {
		t.Fatal(err)
	}
	next := lead(t.Context(), b, "b", time.Minute)
	if got, _ := list(t, b, leaderKey); len(got) != 1 || string(got[0].Value) != "a" {
		t.Errorf("the leader is %v", got)
	}
	select {
	case <-next:
		t.Fatal("two lead")
	case <-time.After(100 * time.Millisecond): // would take less
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Guard(t.Context()) }()

	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := await(t, next)
	if err := <-ended; !errors.Is(err, kvstore.ErrNotLeading) {
		t.Errorf("the guard of the first ended with %v", err)
	}
	if err := first.Write(t.Context(), put("/t/2"), []string{"/t/1"}); !errors.Is(err, kvstore.ErrNotLeading) {
		t.Errorf("who does not lead any more wrote: %v", err)
	}
	if err := second.Write(t.Context(), put("/t/3"), nil); err != nil {
		t.Error(err)
	}
	if got, _ := list(t, a, "/t/"); len(got) != 3 {
		t.Errorf("the store holds %v, want the leader and what each leader wrote", got)
	}
	if err := second.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTermCheckFollowsTheStore(t *testing.T) {
	s := server(t, embedded.Config{})
	a, b := dial(t, s.Endpoints()...), dial(t, s.Endpoints()...)
	first := await(t, lead(t.Context(), a, "a", time.Minute))
	if err := first.Check(t.Context()); err != nil {
		t.Errorf("during its term: %v", err)
	}
	if err := b.Write(t.Context(), nil, []string{leaderKey}); err != nil { // another process takes it away
		t.Fatal(err)
	}
	if err := first.Check(t.Context()); !errors.Is(err, kvstore.ErrNotLeading) {
		t.Errorf("without its key: %v", err)
	}
	second := await(t, lead(t.Context(), b, "b", time.Minute))
	if err := first.Check(t.Context()); !errors.Is(err, kvstore.ErrNotLeading) {
		t.Errorf("in the term of another: %v", err)
	}
	for _, term := range []*kvstore.Term{first, second} {
		if err := term.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestTermOfSilentLeaderEnds(t *testing.T) {
	s := server(t, embedded.Config{})
	a, b := dial(t, s.Endpoints()...), dial(t, s.Endpoints()...)
	first := await(t, lead(t.Context(), a, "a", time.Second))
	next := lead(t.Context(), b, "b", time.Second)
	if err := first.Abandon(); err != nil { // as if the process had died
		t.Fatal(err)
	}
	second := await(t, next)
	<-first.Over()
	if err := first.Write(t.Context(), put("/t/1"), nil); !errors.Is(err, kvstore.ErrNotLeading) {
		t.Errorf("who is late wrote: %v", err)
	}
	if err := second.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTermOutlivesRestartOfStore(t *testing.T) {
	t.Parallel() // it waits, most of the time
	address := programs.FreeAddress(t)
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "http://" + address}
	s := server(t, cfg)
	c := dial(t, address)
	term := await(t, lead(t.Context(), c, "a", time.Minute))
	ended := make(chan error, 1)
	go func() { ended <- term.Guard(t.Context()) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, kvstore.ErrDisconnected) && !errors.Is(err, kvstore.ErrUnavailable) {
		t.Errorf("the guard ended with %v", err)
	}
	server(t, cfg)
	if err := programs.Poll(patience, func() error { return term.Write(t.Context(), put("/t/1"), nil) }); err != nil {
		t.Error(err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTermResignLeavesNothing(t *testing.T) {
	s := server(t, embedded.Config{})
	a, b := dial(t, s.Endpoints()...), dial(t, s.Endpoints()...)
	term := await(t, lead(t.Context(), a, "a", time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Lead(ctx, leaderKey, []byte("b"), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lead ended with %v", err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	if got, _ := list(t, a, "/t/"); len(got) != 0 {
		t.Errorf("the store holds %v", got)
	}
}
