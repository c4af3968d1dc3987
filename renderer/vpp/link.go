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
)

// GoVPP has these as variables of the process; they must be set before the first
// connection. A lost connection is noticed by the next probe. The health check must outlast the stall of a large ACL change, a
// slow receiver of a dump must not lose messages, and what GoVPP logs beside
// returning it as an error is not logged twice.
func init() {
	core.ReplyChannelTimeout = 10 * time.Second
	core.HealthCheckProbeInterval = 200 * time.Millisecond
	core.HealthCheckReplyTimeout = 2 * time.Second
	core.HealthCheckThreshold = 4
	core.SetLogLevel(1) // fatal
}

// Link is one connection to a vswitch. GoVPP keeps it up in the background; a
// link on which a call failed is thrown away, because GoVPP could take a late
// answer for the answer to another question.
type Link struct {
	Conn    *core.Connection
	Timeout time.Duration // of one call

	changed func() // called by the link's goroutine when a Commit would find something to do
	stop    context.CancelFunc
	done    sync.WaitGroup
	alarm   *time.Timer // when it fires a Commit would find something to do

	mu    sync.Mutex
	up    chan struct{} // closed while connected
	isUp  bool
	epoch int  // number of connections made so far
	stale bool // interfaces have changed since they were read
}

// Options of a Link.
type Options struct {
	// Adapter is the vswitch in this process. When it is nil, Socket is the path of VPP's
	// API socket, and Client the name under which VPP knows the connection.
	Adapter        adapter.VppAPI
	Socket, Client string

	Timeout  time.Duration // of one call
	OnChange func()        // called by a goroutine of the link when the owner should look again
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

// Dial starts connecting; it does not wait for it.
func Dial(o Options) (*Link, error) {
	conn, events, err := core.AsyncConnect(newAdapter(o), math.MaxInt32, reconnectInterval)
	if err != nil {
		return nil, fmt.Errorf("connect to the vswitch: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Link{Conn: conn, Timeout: o.Timeout, changed: o.OnChange, stop: stop, up: make(chan struct{}), alarm: time.NewTimer(never)}
	l.done.Go(func() { l.watch(ctx, events) })
	return l, nil
}

// Close disconnects and waits for the goroutines of the link.
func (l *Link) Close() {
	l.stop()
	l.done.Wait()
	l.alarm.Stop()
	l.Conn.Disconnect()
}

// never is longer than any process runs.
const never = time.Duration(math.MaxInt64)

// WakeAt has the owner told at a time that a Commit would find something to do. It is
// the only such time.
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
			l.setState(s.State == core.Connected)
			l.changed()
		case <-l.alarm.C:
			l.changed()
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			l.mu.Lock()
			l.stale = true
			l.mu.Unlock()
			l.changed()
		}
	}
}

func (l *Link) setState(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case up && !l.isUp:
		l.epoch++
		close(l.up)
	case !up && l.isUp:
		l.up = make(chan struct{})
	case up:
		l.epoch++
	}
	l.isUp = up
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

// State returns the number of the connection, and whether interfaces have
// changed since the last call.
func (l *Link) State() (epoch int, stale bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale, l.stale = l.stale, false
	return l.epoch, stale
}

// Connected says whether there is a connection now.
func (l *Link) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isUp
}

// Wait returns when there is a connection.
func (l *Link) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(connectWait, l.Timeout))
	defer cancel()
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	select {
	case <-up:
		return ctx.Err()
	default:
	}
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotConnected, ctx.Err())
	}
}
