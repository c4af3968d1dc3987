package vswitch

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/internal/vswitch/internal/events"
)

// Errors of clients that connect.
var (
	// ErrClosed is returned by what needs a switch that was not closed.
	ErrClosed = errors.New("the vswitch is closed")

	// errRestarting is returned to a client that connects during Restart.
	errRestarting = errors.New("the vswitch restarts")

	// errTooManyClients is returned to a client that connects beyond Options.MaxClients.
	errTooManyClients = errors.New("too many clients of the binary API")
)

// server has the clients of the binary API, whichever door they come through.
type server struct {
	log      *slog.Logger
	messages *messageTable
	limit    int           // of clients
	done     chan struct{} // closed with the server

	mu      sync.Mutex // guards the rest, and what events clients want
	closed  bool
	paused  bool // no client is taken
	clients map[uint32]*client
	last    uint32         // index of a client
	running sync.WaitGroup // goroutines of clients
}

func newServer(log *slog.Logger, limit int) *server {
	return &server{
		log: log, messages: newMessageTable(), limit: limit, done: make(chan struct{}),
		clients: make(map[uint32]*client),
	}
}

// Close disconnects all clients and waits until their goroutines have ended.
// Packets are still forwarded afterwards.
func (s *server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for _, c := range s.clients {
		c.close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// isClosed reports whether Close was called.
func (s *server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// pause disconnects all clients, waits for their ends, and takes no others until resume.
func (s *server) pause() {
	s.mu.Lock()
	s.paused = true
	old := slices.Collect(maps.Values(s.clients))
	s.mu.Unlock()
	for _, c := range old {
		c.close()
		<-c.ended
	}
}

// resume takes clients again.
func (s *server) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
}

// connect registers a client, which must be released.
func (s *server) connect() (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.paused {
		return nil, errRestarting
	}
	if len(s.clients) >= s.limit {
		return nil, fmt.Errorf("%w: %d are connected", errTooManyClients, len(s.clients))
	}
	s.last++
	c := &client{
		server: s, index: s.last, events: events.NewQueue(), done: make(chan struct{}),
		ended: make(chan struct{}),
	}
	s.clients[c.index] = c
	s.running.Add(1)
	return c, nil
}

// release forgets a client; its goroutines have ended.
func (s *server) release(c *client) {
	c.close()
	s.mu.Lock()
	delete(s.clients, c.index)
	s.mu.Unlock()
	close(c.ended)
	s.running.Done()
}

// wantEvents reports whether a client wants events, which name the process pid; false means that
// nothing changes.
func (s *server) wantEvents(c *client, want bool, pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.wantsEvents == want {
		return false
	}
	c.wantsEvents, c.eventsPID = want, pid
	return true
}

// notify sends an event to the clients that want events.
func (s *server) notify(event func(pid uint32) govpp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		if c.wantsEvents {
			c.event(event(c.eventsPID))
		}
	}
}
