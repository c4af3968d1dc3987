package kvstore

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/connectivity"
)

const (
	// callAttempts bounds a call, with the default timeout, to about 8 seconds:
	// longer than the members need to elect another leader.
	callAttempts = 4

	minCallWait = 50 * time.Millisecond
	maxCallWait = time.Second
)

// call runs f until it succeeds, fails for good, has been tried often enough or
// the context ends. Every attempt has a deadline of its own, because a call that
// was in flight when a member died hangs until its deadline. f must do no harm
// when it is repeated after it took effect.
func (c *Client) call(ctx context.Context, attempts int, f func(context.Context) error) error {
	var last error
	for n := range attempts {
		if n > 0 && !pause(ctx, callWait(n)) {
			break
		}
		began := time.Now()
		connected := c.awaitConnection(ctx, began)
		try, cancel := context.WithTimeout(ctx, c.callTimeout)
		err := f(try)
		cancel()
		connected()
		if err == nil {
			c.outage.ends()
			c.settle(ctx)
			return nil
		}
		// Running out of time says less than what went wrong before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil {
			break
		}
		if !transient(err) {
			c.outage.ends()
			break
		}
		c.unanswered(ctx, began, err)
	}
	return c.explain(ctx, last)
}

// settleWait bounds how long a call waits for what the library says of its connection.
const settleWait = 100 * time.Millisecond

// settle waits until a connection that has just answered is called ready. The library
// lets calls pass a moment earlier (balancer_wrapper.go of gRPC changes the picker before
// the state), and a watch that began in that moment would take the connection for lost.
func (c *Client) settle(ctx context.Context) {
	conn := c.etcd.ActiveConnection()
	if conn == nil || conn.GetState() == connectivity.Ready { // nil: in process
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	for state := conn.GetState(); state != connectivity.Ready && conn.WaitForStateChange(ctx, state); {
		state = conn.GetState()
	}
}

// callWait returns the time to wait before attempt n: doubled each time, with the
// upper half at random so that many clients do not come back together.
func callWait(n int) time.Duration {
	d := maxCallWait
	if n < 6 {
		d = min(d, minCallWait<<(n-1))
	}
	return d/2 + rand.N(d/2)
}

// pause waits for d and says whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
