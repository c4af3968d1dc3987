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

// Errors for connecting clients.
var (
	// ErrClosed is returned if the switch was closed.
	ErrClosed = errors.New("the vswitch is closed")

	// errRestarting is returned to a client that connects during Restart.
	errRestarting = errors.New("the vswitch restarts")

	// errTooManyClients is returned to a client that connects beyond Options.MaxClients.
	errTooManyClients = errors.New("too many clients of the binary API")
)

// server manages the clients of the binary API, over all transports.
type server struct {
	log      *slog.Logger
	messages *messageTable
	limit    int           // maximum number of clients
	done     chan struct{} // closed with the server

	mu      sync.Mutex // guards the fields below, and the event subscriptions of clients
	closed  bool
	paused  bool // no new clients are accepted
	clients map[uint32]*client
	last    uint32         // last index of a client
	running sync.WaitGroup // goroutines of clients
}

func newServer(log *slog.Logger, limit int) *server {
	return &server{
		log: log, messages: newMessageTable(), limit: limit, done: make(chan struct{}),
		clients: make(map[uint32]*client),
	}
}

// Close disconnects all clients and waits until their goroutines have ended. Packets are still
// forwarded afterwards.
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

// pause disconnects all clients, waits until they have ended, and accepts no others until resume.
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

// resume accepts clients again.
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

// release removes a client; its goroutines have ended.
func (s *server) release(c *client) {
	c.close()
	s.mu.Lock()
	delete(s.clients, c.index)
	s.mu.Unlock()
	close(c.ended)
	s.running.Done()
}

// wantEvents sets whether a client receives events, which contain the process pid; it returns false
// if that changes nothing.
func (s *server) wantEvents(c *client, want bool, pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.wantsEvents == want {
		return false
	}
	c.wantsEvents, c.eventsPID = want, pid
	return true
}

// notify sends an event to the subscribed clients.
func (s *server) notify(event func(pid uint32) govpp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		if c.wantsEvents {
			c.event(event(c.eventsPID))
		}
	}
}
