package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
)

const (
	// callAttempts bounds a call, with the default timeout, to about 8 seconds:
	// longer than the members need to elect another leader.
	callAttempts = 4

	minCallWait = 50 * time.Millisecond
	maxCallWait = time.Second
)

// connection is how a client comes to its store. It bounds and repeats calls, and explains why they
// fail. It is safe for concurrent use.
type connection struct {
	etcd        *clientv3.Client
	name        string // for messages: the endpoints
	callTimeout time.Duration
	outage      *outage
}

// call runs f until it succeeds, fails for good, has been tried often enough or
// the context ends. Every attempt has a deadline of its own, because a call that
// was in flight when a member died hangs until its deadline. f must do no harm
// when it is repeated after it took effect.
func (c *connection) call(ctx context.Context, attempts int, f func(context.Context) error) error {
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
func (c *connection) settle(ctx context.Context) {
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

// pause waits for d and reports whether the context is still alive.
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

// get reads keys. It may be repeated like any read.
func (c *connection) get(ctx context.Context, key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse, err error) {
	err = c.call(ctx, callAttempts, func(ctx context.Context) (err error) {
		resp, err = c.etcd.Get(ctx, key, opts...)
		return err
	})
	return resp, err
}

// grant returns a lease that expires a time after its last sign of life; at least a second.
func (c *connection) grant(ctx context.Context, ttl time.Duration) (id clientv3.LeaseID, err error) {
	err = c.call(ctx, callAttempts, func(ctx context.Context) error {
		lease, err := c.etcd.Grant(ctx, max(1, int64(ttl/time.Second)))
		if err == nil {
			id = lease.ID
		}
		return err
	})
	return id, err
}

// head returns the newest revision of the store. The key need not exist, but the
// user must be allowed to read it.
func (c *connection) head(ctx context.Context, key string) (int64, error) {
	resp, err := c.get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.GetRevision(), nil
}

// explain turns the last error of a call into one for people: it names the
// store and, where it is one of ours, wraps the sentinel beside the cause.
func (c *connection) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("etcd at %s: %w", c.name, ctx.Err())
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("etcd at %s: %w: %w", c.name, ErrCompacted, err)
	case errors.Is(err, rpctypes.ErrNoLeader):
		return c.away(fmt.Errorf("etcd at %s: %w: %w", c.name, ErrNoLeader, err))
	case transient(err):
		return c.away(fmt.Errorf("etcd at %s %w: %w", c.name, ErrUnavailable, plain(c.cause(ctx, err))))
	}
	return fmt.Errorf("etcd at %s: %w", c.name, plain(err))
}

// healthKey is read to see whether the store answers. It need not exist.
const healthKey = "/sluice/health"

// causeTimeout bounds the question for the cause of a failure.
const causeTimeout = 200 * time.Millisecond

// cause finds out why a call ran out of time. Calls wait for a connection, so
// that a short absence of the store does not fail them, and then only know that
// it did not come; a call that does not wait gets to know why.
func (c *connection) cause(ctx context.Context, err error) error {
	if c.etcd == nil || codeOf(err) != codes.DeadlineExceeded {
		return err
	}
	conn := c.etcd.ActiveConnection()
	if conn == nil || conn.GetState() == connectivity.Ready {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), causeTimeout)
	defer cancel()
	probe := &etcdserverpb.RangeRequest{Key: []byte(healthKey)}
	if _, why := etcdserverpb.NewKVClient(conn).Range(ctx, probe, grpc.WaitForReady(false)); why != nil && codeOf(why) == codes.Unavailable {
		return why
	}
	return err
}

// away marks an error of the client.
func (c *connection) away(err error) error { return &away{err, c.outage, time.Now()} }

// unanswered notes that a call was not answered.
func (c *connection) unanswered(ctx context.Context, began time.Time, err error) {
	if why := c.explain(ctx, err); ctx.Err() == nil {
		c.outage.begins(began, why)
	}
}

// isConnected reports whether the client has a connection, or needs none.
func (c *connection) isConnected() bool {
	conn := c.etcd.ActiveConnection()
	return conn == nil || conn.GetState() == connectivity.Ready // nil: in process
}

// errNoConnection is why a call that waits for a connection has no answer yet.
var errNoConnection = fmt.Errorf("no connection within %v: %w", outageAfter, context.DeadlineExceeded)

// awaitConnection notes early that a call waits for a connection: its deadline is much
// later. What it returns has to be called when the call ends.
func (c *connection) awaitConnection(ctx context.Context, began time.Time) (end func() bool) {
	return time.AfterFunc(outageAfter, func() {
		if !c.isConnected() {
			c.unanswered(ctx, began, errNoConnection)
		}
	}).Stop
}
