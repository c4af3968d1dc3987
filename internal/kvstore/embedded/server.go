package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/sluice-net/sluice/internal/lib/scratch"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Config configures where the server stores its data and where it listens.
type Config struct {
	// Dir holds the data across restarts. If it is empty, a temporary directory is created and
	// removed on Close, and nothing is synced to disk. The directory of a process that was killed
	// is removed by the next Start.
	Dir string
	// ClientURL is where clients connect, such as "http://127.0.0.1:2379"; port 0 selects a free
	// port. If it is empty, only Client reaches the server.
	ClientURL string
	// TLS configures TLS for remote clients. Without it ClientURL must be loopback.
	TLS TLS
	// Writable lists the prefixes of the keys that remote clients may write, a bounded number of
	// bytes of them; nil: all keys. Client may always write everything.
	Writable []string
	// Quota is how many bytes the store may take on disk; zero means 1 GiB.
	Quota int64
	// PeerURL is where the server would listen for other members. There are none, so it is normally
	// empty, which means no listener.
	PeerURL string
	// Log receives the messages of etcd, with lower levels.
	Log *slog.Logger
}

// Server is a running etcd. It is safe for concurrent use.
type Server struct {
	etcd    *embed.Etcd
	log     *slog.Logger
	release context.CancelFunc // ends the streams of remote clients, and the care for space
	space   sync.WaitGroup

	temporary *scratch.Folder // nil: the data stays

	mu      sync.Mutex
	clients []*kvstore.Client
	close   func() error
}

// Start starts a server and returns when it serves requests, or when the context ends. The context
// has no effect afterwards.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{log: cfg.Log}
	s.close = sync.OnceValue(s.stop)
	temporary := cfg.Dir == ""
	if temporary {
		var err error
		if s.temporary, err = scratch.New("sluice-etcd-"); err != nil {
			return nil, fmt.Errorf("embedded etcd: %w", err)
		}
		cfg.Dir = s.temporary.Path
	}
	streams, release := context.WithCancel(context.Background())
	s.release = release
	d := &door{prefixes: cfg.Writable}
	etcd, err := settings(streams, cfg, temporary, d)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.serve(ctx, etcd); err != nil {
		err = fmt.Errorf("embedded etcd in %s: start: %w", cfg.Dir, err)
		return nil, errors.Join(err, s.Close())
	}
	d.server.Store(s.etcd.Server)
	s.space.Go(func() { s.keepSpace(streams) })
	cfg.Log.Debug("embedded etcd serves", "dir", cfg.Dir, "endpoints", s.Endpoints())
	return s, nil
}

// serve starts etcd and waits until the member has elected itself.
func (s *Server) serve(ctx context.Context, etcd *embed.Config) error {
	if err := unused(etcd.Dir); err != nil {
		return err
	}
	var err error
	if s.etcd, err = embed.StartEtcd(etcd); err != nil {
		return err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-s.etcd.Server.StopNotify():
		return errors.New("it stopped at once")
	case err := <-s.etcd.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Endpoints returns the addresses for clients, with their real ports; none if the server has no
// listener.
func (s *Server) Endpoints() []string {
	var out []string
	for _, l := range s.etcd.Clients {
		out = append(out, l.Addr().String())
	}
	return out
}

// Client returns a new client that calls the server without a network. It works until the client or
// the server is closed.
func (s *Server) Client() *kvstore.Client {
	c := kvstore.FromClient(v3client.New(s.etcd.Server), "embedded", s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Compact removes the history before the newest revision, which also happens periodically. Watches
// that start in the removed history fail.
func (s *Server) Compact(ctx context.Context) error {
	revision := s.etcd.Server.KV().Rev()
	if _, err := s.etcd.Server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
		return fmt.Errorf("embedded etcd: compact at revision %d: %w", revision, err)
	}
	return nil
}

// Close stops the server and all its clients. Further calls return the result of the first.
func (s *Server) Close() error { return s.close() }

// stop implements Close. It closes clients first: otherwise the watches of those in process would
// not notice that the server is gone.
func (s *Server) stop() error {
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	s.release()
	s.space.Wait()
	if s.etcd != nil {
		s.etcd.Close()
	}
	if s.temporary != nil {
		if err := s.temporary.Remove(); err != nil {
			errs = append(errs, fmt.Errorf("embedded etcd: %w", err))
		}
	}
	return errors.Join(errs...)
}
