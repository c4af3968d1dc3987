package acl

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
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
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

// link is one connection to a vswitch. GoVPP keeps it up in the background; a
// link on which a call failed is thrown away, because GoVPP could take a late
// answer for the answer to another question.
type link struct {
	conn    *core.Connection
	timeout time.Duration // of one call
	changed func()        // called by the link's goroutine when a Commit would find something to do
	stop    context.CancelFunc
	done    sync.WaitGroup
	alarm   *time.Timer // when it fires a Commit would find something to do

	mu    sync.Mutex
	up    chan struct{} // closed while connected
	isUp  bool
	epoch int  // number of connections made so far
	stale bool // interfaces have changed since they were read
}

// newAdapter returns what a connection is made of.
func newAdapter(o Options) adapter.VppAPI {
	if o.Adapter != nil {
		return o.Adapter
	}
	c := socketclient.NewVppClient(o.Socket)
	c.SetClientName("sluice-acl")
	return c
}

// dial starts connecting; it does not wait for it.
func dial(o Options) (*link, error) {
	conn, events, err := core.AsyncConnect(newAdapter(o), math.MaxInt32, reconnectInterval)
	if err != nil {
		return nil, fmt.Errorf("connect to the vswitch: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &link{conn: conn, timeout: o.Timeout, changed: o.OnChange, stop: stop, up: make(chan struct{}), alarm: time.NewTimer(never)}
	l.done.Go(func() { l.watch(ctx, events) })
	return l, nil
}

// close disconnects and waits for the goroutines of the link.
func (l *link) close() {
	l.stop()
	l.done.Wait()
	l.alarm.Stop()
	l.conn.Disconnect()
}

// never is longer than any process runs.
const never = time.Duration(math.MaxInt64)

// wakeAt has the owner told at a time that a Commit would find something to do. It is
// the only such time.
func (l *link) wakeAt(t time.Time) { l.alarm.Reset(time.Until(t)) }

// watch follows the state of the connection and changes of interfaces.
func (l *link) watch(ctx context.Context, states <-chan core.ConnectionEvent) {
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

func (l *link) setState(up bool) {
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
func (l *link) subscribe(ctx context.Context) govpp.Watcher {
	w, err := l.conn.WatchEvent(ctx, &interfaces.SwInterfaceEvent{})
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if _, err := interfaces.NewServiceClient(l.conn).WantInterfaceEvents(ctx, &interfaces.WantInterfaceEvents{EnableDisable: 1}); err != nil {
		w.Close()
		return nil
	}
	return w
}

// state returns the number of the connection, and whether interfaces have
// changed since the last call.
func (l *link) state() (epoch int, stale bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale, l.stale = l.stale, false
	return l.epoch, stale
}

// connected says whether there is a connection now.
func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isUp
}

// wait returns when there is a connection.
func (l *link) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(connectWait, l.timeout))
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

// needed are the requests without which nothing works.
var needed = []govpp.Message{
	&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{}, &acl.ACLDump{}, &acl.ACLDetails{},
	&acl.ACLInterfaceListDump{}, &acl.ACLInterfaceListDetails{}, &interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{},
	&memclnt.ControlPing{},
}

// version asks for the version of the vswitch and checks that it has all messages.
func (l *link) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	version := "of unknown version"
	if r, err := vpe.NewServiceClient(l.conn).ShowVersion(ctx, &vpe.ShowVersion{}); err == nil {
		version = r.Version
	} else if ctx.Err() != nil {
		return "", fmt.Errorf("ask the vswitch for its version: %w", err)
	}
	for _, m := range needed {
		if _, err := l.conn.GetMessageID(m); err != nil {
			return version, fmt.Errorf("%w: vpp %s has no message %s_%s; is the acl plugin loaded?",
				ErrIncompatible, version, m.GetMessageName(), m.GetCrcString())
		}
	}
	return version, nil
}

// errNoCLI is returned where the vswitch has no command line.
var errNoCLI = errors.New("the vswitch has no command line")

// cli runs a command of the vswitch's command line and returns what it prints.
func (l *link) cli(ctx context.Context, command string) (string, error) {
	m := &vlib.CliInband{Cmd: command}
	if _, err := l.conn.GetMessageID(m); err != nil {
		return "", fmt.Errorf("%s: %w", command, errNoCLI)
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	r, err := vlib.NewServiceClient(l.conn).CliInband(ctx, m)
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return r.Reply, nil
}
