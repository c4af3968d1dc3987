package debugapi

import (
	"context"
	"errors"
	"testing"
)

// TestBoundedAnswersFourAtOnce: others wait, and stop waiting when their client goes.
func TestBoundedAnswersFourAtOnce(t *testing.T) {
	at, leave, left := make(chan int, 10), make(chan struct{}), make(chan error, 10)
	answer := bounded(func(_ context.Context, q int) (int, error) {
		at <- q
		<-leave
		return q, nil
	})
	ask := func(ctx context.Context, q int) {
		_, err := answer(ctx, q)
		left <- err
	}
	for q := range 4 {
		go ask(t.Context(), q)
	}
	for range 4 {
		<-at
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask(gone, 4)
	if err := <-left; !errors.Is(err, context.Canceled) || len(at) != 0 {
		t.Errorf("the fifth question of a client that is gone: %v, %d answered", err, len(at))
	}
	go ask(t.Context(), 5)
	close(leave)
	if q := <-at; q != 5 {
		t.Errorf("question %d is answered, want that which waited", q)
	}
	for range 5 {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}
