package vpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"
	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/core"
)

// Errors of the connection to the vswitch.
var (
	// ErrNotConnected is returned while there is no connection to the vswitch.
	ErrNotConnected = errors.New("not connected to the vswitch")
	// ErrIncompatible is returned when the vswitch does not know a message, for
	// example because the acl plugin is not loaded or its version is another one.
	ErrIncompatible = errors.New("the vswitch is not compatible")

	errLost = errors.New("the vswitch has closed the connection")
)

const (
	// dumpBuffer is how many messages of a dump can wait to be received. GoVPP
	// drops what does not fit, silently.
	dumpBuffer = 16384
	// reconnectInterval is the pause between two attempts to connect.
	reconnectInterval = 250 * time.Millisecond
	// connectWait is how long a Commit waits for a connection before it fails and
	// leaves the other renderers to go on.
	connectWait = 2 * time.Second
	// disconnectWait is how long the vswitch is given to take leave.
	disconnectWait = time.Second
)

// GoVPP has these as variables of the process; they must be set before the first
// connection. A lost connection is noticed when the next probe cannot be sent, which is at the
// latest when the last one has timed out. The health check must outlast the stall of a large ACL
// change: it gives a vswitch 10 s. A probe and renderer.Overdue together are less than a second. A
// slow receiver of a dump must not lose messages, and what GoVPP logs beside
// returning it as an error is not logged twice.
func init() {
	core.ReplyChannelTimeout = 10 * time.Second
	core.HealthCheckProbeInterval = 100 * time.Millisecond
	core.HealthCheckReplyTimeout = 500 * time.Millisecond
	core.HealthCheckThreshold = 19
	socketclient.MaxWaitReady = disconnectWait / 2 // it is waited for again; Disconnect waits for it
	core.SetLogLevel(1)                            // fatal
}

// DefaultTimeout of one call leaves room for the stall of a very large change.
const DefaultTimeout = 10 * time.Second

// Link is the connection of a renderer to its vswitch, for as long as the renderer is. GoVPP
// keeps a connection up in the background; one on which a call failed is thrown away, because
// GoVPP could take a late answer for the answer to another question, and the next Connect makes
// another. Everything but Prompt, Connected, Waiting, Calls and Interrupt is for one goroutine at a
// time.
type Link struct {
	Conn    *core.Connection // of the last Connect
	Timeout time.Duration    // of one call

	options Options
	life    context.Context    // of all calls
	end     context.CancelFunc // of life
	dialled bool               // Conn is in use
	stop    context.CancelFunc
	done    sync.WaitGroup
	alarm   *time.Timer // when it fires a Commit would find something to do
	health  health
}

// Options of a Link.
type Options struct {
	// Adapter is the vswitch in this process. When it is nil, Socket is the path of VPP's
	// API socket, and Client the name under which VPP knows the connection.
	Adapter        adapter.VppAPI
	Socket, Client string

	Timeout  time.Duration // of one call; DefaultTimeout unless it is more than 0
	OnChange func()        // called by a goroutine of the link when the owner should look again; may be nil
}

// newAdapter returns what a connection is made of.
func newAdapter(o Options) adapter.VppAPI {
	if o.Adapter != nil {
		return o.Adapter
	}
	c := socketclient.NewVppClient(o.Socket)
	c.SetClientName(o.Client)
	return c
}

// Dial starts connecting; it does not wait for it. Close must be called.
func Dial(o Options) (*Link, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	l := &Link{Timeout: o.Timeout, options: o, alarm: time.NewTimer(never), health: health{up: make(chan struct{})}}
	l.life, l.end = context.WithCancel(context.Background())
	if err := l.dial(); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// dial makes a connection and follows it.
func (l *Link) dial() error {
	asked := &answers{VppAPI: newAdapter(l.options)}
	conn, events, err := core.AsyncConnect(asked, math.MaxInt32, reconnectInterval)
	if err != nil {
		return fmt.Errorf("connect to the vswitch: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.Conn, l.dialled, l.stop = conn, true, stop
	l.health.follow(asked)
	l.done.Go(func() { l.watch(ctx, events) })
	return nil
}

// drop throws the connection away, if there is one, and waits for the goroutine that follows it.
func (l *Link) drop() {
	if !l.dialled {
		return
	}
	l.stop()
	l.done.Wait()
	l.alarm.Stop()
	l.disconnect()
	l.dialled = false
	l.health.set(false)
}

// disconnect says goodbye to the vswitch. One that does not listen is left behind, by a goroutine
// that ends when GoVPP does.
func (l *Link) disconnect() {
	conn, gone := l.Conn, make(chan struct{})
	go func() {
		defer close(gone)
		conn.Disconnect()
	}()
	timeout := time.NewTimer(disconnectWait)
	defer timeout.Stop()
	select {
	case <-gone:
	case <-timeout.C:
	}
}

// Connect returns when there is a connection, which it makes unless there is one. It gives the
// number of the connection, which is another one after every interruption, and reports whether
// interfaces have changed since the last call. A Link that is closed does not connect.
func (l *Link) Connect(ctx context.Context) (epoch int, stale bool, err error) {
	if l.life.Err() != nil {
		return 0, false, fmt.Errorf("%w: the renderer is closed", ErrNotConnected)
	}
	if !l.dialled {
		if err := l.dial(); err != nil {
			return 0, false, err
		}
	}
	if err := l.wait(ctx); err != nil {
		return 0, false, err
	}
	epoch, stale = l.health.take()
	return epoch, stale, nil
}

// Failed takes the error of a call, or nil. After one that leaves a call without its answer the
// connection is of no use; an answer with a return value leaves it usable.
func (l *Link) Failed(err error) {
	if err != nil && broke(err) {
		l.drop()
	}
}

// Calls returns a context for the calls of a Commit: it ends with ctx, when the Link is
// interrupted, and when the connection is lost, since no answer comes then. The function releases
// it. There is one such context at a time.
func (l *Link) Calls(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, hang := context.WithCancelCause(ctx)
	l.health.endCalls(hang)
	stop := context.AfterFunc(l.life, func() { hang(nil) })
	return ctx, func() { stop(); hang(nil) }
}

// Ended returns the error of a Commit, with the reason when its calls were ended because the
// connection is lost. Its context is that of Calls.
func Ended(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errLost) {
		return err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// Interrupt ends all calls, for good. It may be called by any goroutine, before Close: whoever
// closes then need not wait for a vswitch that does not answer.
func (l *Link) Interrupt() { l.end() }

// Close disconnects for good, and waits for the goroutines of the link.
func (l *Link) Close() {
	l.end()
	l.drop()
}

// Prompt has the owner told that a Commit would find something to do. It may be called by any
// goroutine.
func (l *Link) Prompt() { l.options.OnChange() }

// never is longer than any process runs.
const never = time.Duration(math.MaxInt64)

// WakeAt has the owner told at a time that a Commit would find something to do, as long as the
// connection is not thrown away. It is the only such time.
func (l *Link) WakeAt(t time.Time) { l.alarm.Reset(time.Until(t)) }

// watch follows the state of the connection and changes of interfaces.
func (l *Link) watch(ctx context.Context, states <-chan core.ConnectionEvent) {
	var events <-chan govpp.Message
	var watcher govpp.Watcher // ends with ctx, too
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-states:
			// Another process behind the socket may number its messages otherwise.
			if watcher != nil {
				watcher.Close()
			}
			watcher, events = nil, nil
			if s.State == core.Connected {
				if watcher = l.subscribe(ctx); watcher != nil {
					events = watcher.Events()
				}
			}
			l.health.set(s.State == core.Connected)
			l.Prompt()
		case <-l.alarm.C:
			l.Prompt()
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			l.health.setStale()
			l.Prompt()
		}
	}
}

// subscribe asks for interface events. A vswitch that has none is served without:
// then changes of interfaces are seen when something else makes them be read.
func (l *Link) subscribe(ctx context.Context) govpp.Watcher {
	w, err := l.Conn.WatchEvent(ctx, &interfaces.SwInterfaceEvent{})
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if _, err := interfaces.NewServiceClient(l.Conn).WantInterfaceEvents(ctx, &interfaces.WantInterfaceEvents{EnableDisable: 1}); err != nil {
		w.Close()
		return nil
	}
	return w
}

// Connected reports whether there is a connection now.
func (l *Link) Connected() bool { return l.health.connected() }

// Waiting returns since when the vswitch has not answered what it was asked, be it by the health
// check; zero when it has answered everything, and while there is no connection.
func (l *Link) Waiting() time.Time { return l.health.waiting() }

// wait returns when there is a connection.
func (l *Link) wait(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, min(connectWait, l.Timeout))
	defer cancel()
	up := l.health.upcoming()
	select {
	case <-up:
		return ctx.Err()
	default:
	}
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotConnected, l.absent(parent))
	}
}

// absent returns why there is no connection.
func (l *Link) absent(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.options.Adapter != nil:
		return errors.New("it does not answer")
	}
	if err := CheckSocket(ctx, APINetwork, l.options.Socket); err != nil {
		return err
	}
	return fmt.Errorf("socket %s: VPP does not answer", l.options.Socket)
}
