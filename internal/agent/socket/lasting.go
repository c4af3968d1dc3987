package socket

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// lookEvery is the interval at which a Lasting looks for its socket.
const lookEvery = time.Second

// Lasting is a listener that listens again when its socket is removed from the file system.
// Connections are not affected.
type Lasting struct {
	path  string
	group int
	log   *slog.Logger

	mu   sync.Mutex
	now  *net.UnixListener
	made os.FileInfo // what is at the path while it is the socket of now
	gone error       // why there is no socket; nil when there is one
}

// ListenLasting listens as Listen does. Run keeps the socket there.
func ListenLasting(ctx context.Context, path string, group int, log *slog.Logger) (*Lasting, error) {
	l := &Lasting{path: path, group: group, log: log}
	return l, l.listen(ctx)
}

// listen makes the socket, and has Accept use it.
func (l *Lasting) listen(ctx context.Context) error {
	made, err := Listen(ctx, l.path, l.group)
	if err != nil {
		return err
	}
	u, _ := made.(*net.UnixListener) // it always is
	u.SetUnlinkOnClose(false)        // what is at the path then may be another one's
	info, err := os.Lstat(l.path)
	if err != nil {
		_ = u.Close()
		return fmt.Errorf("look at the new socket: %w", err)
	}
	l.mu.Lock()
	before := l.now
	l.now, l.made = u, info
	l.mu.Unlock()
	if before != nil {
		_ = before.Close() // Accept goes on with the new one
	}
	return nil
}

// Run looks for the socket until ctx ends.
func (l *Lasting) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.look(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look listens again when the socket is gone.
func (l *Lasting) look(ctx context.Context) {
	if l.isThere() || ctx.Err() != nil { // who ends removes it
		return
	}
	err := l.listen(ctx)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	first := l.gone == nil
	l.gone = err
	l.mu.Unlock()
	switch {
	case err == nil:
		l.log.Warn("the socket was removed; it is served again", "path", l.path)
	case first:
		l.log.Error("the socket was removed, and cannot be served again", "path", l.path, "error", err)
	}
}

// isThere reports whether the socket is still at its path.
func (l *Lasting) isThere() bool {
	info, err := os.Lstat(l.path)
	l.mu.Lock()
	defer l.mu.Unlock()
	return err == nil && os.SameFile(info, l.made)
}

// Gone returns why the socket was removed and cannot be served again; "" when it is there.
func (l *Lasting) Gone() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		return ""
	}
	return "the socket " + l.path + " was removed, and cannot be served again: " + l.gone.Error()
}

// Accept implements net.Listener.
func (l *Lasting) Accept() (net.Conn, error) {
	for {
		used := l.current()
		c, err := used.Accept()
		if err == nil || used == l.current() {
			return c, err
		}
	}
}

func (l *Lasting) current() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Addr implements net.Listener.
func (l *Lasting) Addr() net.Addr { return l.current().Addr() }

// Close implements net.Listener. It removes the socket if it is there.
func (l *Lasting) Close() error {
	if l.isThere() {
		_ = os.Remove(l.path)
	}
	return l.current().Close()
}
