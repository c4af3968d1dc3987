package traffic

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// retryEvery is the pause before an agent is asked again that has ended while it was followed.
const retryEvery = time.Second

// steady is how long an agent has to answer until another end counts as another restart.
const steady = 5 * time.Second

// Follow calls ask until it returns nil, ctx ends, or its error is not that of an agent that is
// gone. After a success, which ask reports by calling worked, an agent that is gone is asked again
// for the time of Patience. What happens is reported once for each time that it is gone.
func (s *Shell) Follow(ctx context.Context, agent Agent, ask func(worked func()) error) error {
	w := term.NewWriter(s.ErrOut)
	var since, up time.Time // when it was found gone, and when it answered last
	ever, gone := false, false
	worked := func() {
		if gone {
			w.Printf("the agent answers again: what came in between is missing\n")
		}
		ever, gone, up = true, false, time.Now()
	}
	for {
		err := ask(worked)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case !ever || !agent.IsGone(err):
			return err
		case since.IsZero() || !gone && time.Since(up) > steady:
			since = time.Now()
			w.Printf("%s; asking again for %s\n", err, s.Patience)
		case time.Since(since) > s.Patience:
			return err
		}
		if gone = true; w.Err() != nil {
			return w.Err()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryEvery):
		}
	}
}

// interruptible returns a context that also ends when the program is interrupted, or after a
// period; 0 is none.
func interruptible(ctx context.Context, period time.Duration) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	if period <= 0 {
		return ctx, stop
	}
	bounded, cancel := context.WithTimeout(ctx, period)
	return bounded, func() { cancel(); stop() }
}
