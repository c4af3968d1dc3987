package vpp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// ErrIncompatible is returned when the vswitch does not support a message, for example because
	// the acl plugin is not loaded or has another version.
	ErrIncompatible = errors.New("the vswitch is not compatible")

	errLost = errors.New("the vswitch has closed the connection")
)

const (
	// dumpBuffer is the number of messages of a dump that can be buffered. GoVPP silently drops the
	// rest.
	dumpBuffer = 16384
	// reconnectInterval is the pause between two attempts to connect.
	reconnectInterval = 250 * time.Millisecond
	// connectWait is how long an Apply waits for a connection before it fails, so that other
	// renderers can continue.
	connectWait = 2 * time.Second
	// disconnectWait is how long the vswitch may take to disconnect.
	disconnectWait = time.Second
)

// GoVPP has these settings as global variables; they must be set before the first connection. A
// lost connection is detected when the next probe cannot be sent, at the latest when the last one
// has timed out. The health check must tolerate the pause for a large ACL change, so it gives the
// vswitch 10 s. A probe and renderer.Overdue together are less than a second. A slow receiver of a
// dump must not lose messages. GoVPP returns its errors, so it need not log them.
func init() {
	core.ReplyChannelTimeout = 10 * time.Second
	core.HealthCheckProbeInterval = 100 * time.Millisecond
	core.HealthCheckReplyTimeout = 500 * time.Millisecond
	core.HealthCheckThreshold = 19
	socketclient.MaxWaitReady = disconnectWait / 2 // the wait is repeated; Disconnect waits that long
	core.SetLogLevel(1)                            // fatal
}

// DefaultTimeout of one call allows for the pause for a very large change.
const DefaultTimeout = 10 * time.Second

// Link is the connection of a renderer to its vswitch, for the lifetime of the renderer. GoVPP
// keeps a connection up in the background. After a failed call the connection is dropped, because
// GoVPP could take a late answer for the answer to another request; the next Connect creates a new
// one. Only Prompt, Connected, Unanswered, Calls and Interrupt may be called concurrently.
type Link struct {
	Conn    *core.Connection // created by the last Connect
	Timeout time.Duration    // of one call

	options Options
	life    context.Context    // parent of all calls
	end     context.CancelFunc // of life
	dialled bool               // Conn is in use
	stop    context.CancelFunc
	done    sync.WaitGroup
	alarm   *time.Timer // fires when an Apply would have work to do
	health  health
}

// Options configure a Link.
type Options struct {
	// Adapter is the vswitch in this process. If it is nil, Socket is the path of VPP's API socket,
	// and Client the name of the connection in VPP.
	Adapter        adapter.VppAPI
	Socket, Client string

	Timeout  time.Duration // of one call; DefaultTimeout unless it is more than 0
	OnChange func()        // called in a goroutine of the link when an Apply would have work to do; may be nil
	Log      *slog.Logger  // nil discards
}

// newAdapter returns the adapter for a new connection.
func newAdapter(o Options) adapter.VppAPI {
	if o.Adapter != nil {
		return o.Adapter
	}
	c := socketclient.NewVppClient(o.Socket)
	c.SetClientName(o.Client)
	return c
}

// Dial starts connecting and does not wait. The caller must call Close.
func Dial(o Options) (*Link, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Link{Timeout: o.Timeout, options: o, alarm: time.NewTimer(never), health: health{up: make(chan struct{})}}
	l.life, l.end = context.WithCancel(context.Background())
	if err := l.dial(); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// dial creates a connection and watches it.
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

// drop closes the connection, if any, and waits for the goroutine that watches it.
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

// disconnect disconnects from the vswitch. If the vswitch does not respond, disconnect leaves a
// goroutine behind that ends together with GoVPP's.
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

// Connect waits for a connection, and creates one if necessary. epoch numbers connections and
// changes with every interruption. stale reports whether interfaces have changed since the last
// call. A closed Link does not connect.
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
	epoch, stale = l.health.takeEpoch()
	return epoch, stale, nil
}

// Failed handles the error of a call, or nil. After an error that leaves a call unanswered, it
// drops the connection. An answer with an error value leaves the connection usable.
func (l *Link) Failed(err error) {
	if err != nil && broke(err) {
		l.drop()
	}
}

// Calls returns a context for the calls of an Apply. It ends with ctx, when the Link is
// interrupted, and when the connection is lost, since no answer can come then. The caller calls the
// returned function to release it. There is one such context at a time.
func (l *Link) Calls(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, hang := context.WithCancelCause(ctx)
	l.health.endCalls(hang)
	stop := context.AfterFunc(l.life, func() { hang(nil) })
	return ctx, func() { stop(); hang(nil) }
}

// Ended returns the error of an Apply, together with the reason if its calls were cancelled because
// the connection was lost. ctx is the context from Calls.
func Ended(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errLost) {
		return err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// Interrupt cancels all current and future calls. Any goroutine may call it before Close, which
// then need not wait for a vswitch that does not answer.
func (l *Link) Interrupt() { l.end() }

// Close disconnects permanently and waits for the goroutines of the link.
func (l *Link) Close() {
	l.end()
	l.drop()
}

// Prompt calls OnChange, to request an Apply. Any goroutine may call it.
func (l *Link) Prompt() { l.options.OnChange() }

// never is longer than any process runs.
const never = time.Duration(math.MaxInt64)

// WakeAt schedules a call of OnChange at a time, unless the connection is dropped before. It
// replaces an earlier schedule.
func (l *Link) WakeAt(t time.Time) { l.alarm.Reset(time.Until(t)) }

// watch follows the state of the connection and interface changes.
func (l *Link) watch(ctx context.Context, states <-chan core.ConnectionEvent) {
	var events <-chan govpp.Message
	var watcher govpp.Watcher // ends with ctx, too
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-states:
			// Another process behind the socket may use other message numbers.
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

// subscribe requests interface events. Without event support in the vswitch, interface changes are
// noticed at the next read.
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

// Unanswered returns since when the vswitch has not answered a request, which may be a health check.
// It is zero when everything is answered, and while there is no connection.
func (l *Link) Unanswered() time.Time { return l.health.unanswered() }

// wait waits for a connection.
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

// absent returns the reason why there is no connection.
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
