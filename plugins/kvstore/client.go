package kvstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
)

// Config configures the connection to the store and its timeouts.
type Config struct {
	Endpoints   []string      // host:port or URLs of the members; at least one is required
	DialTimeout time.Duration // for the first answer in Dial; zero means 5 s
	CallTimeout time.Duration // for each attempt of a call; zero means 2 s
	TLS         *tls.Config   // nil for plain TCP
	ServerName  string        // in the store's certificate; empty: the host of the endpoint
	Username    string        // empty if the store requires no login
	Password    string
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultCallTimeout = 2 * time.Second

	// A peer that vanished silently is detected after the sum of both. Below 5 s a server takes the
	// pings for an attack.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second

	// Delays between attempts to reconnect: they are short, because policy is not updated
	// meanwhile.
	minConnectWait = 100 * time.Millisecond
	maxConnectWait = 2 * time.Second

	// The library must give up repeating well before the call's timeout; otherwise "deadline
	// exceeded" hides the cause of a failure.
	libraryRetries = 2
)

// Client reads, follows and writes the store. It is safe for concurrent use.
type Client struct {
	conn       *connection
	pageSize   int64         // keys per page of a List
	probeEvery time.Duration // interval at which watches request progress
	log        *slog.Logger
}

// Open returns a client without waiting for the store, so that a program can start before its store
// does; until then calls fail with ErrUnavailable. A user logs in with the first call, and again
// whenever the store requires it.
func Open(cfg Config, log *slog.Logger) (*Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoint is configured")
	}
	name := strings.Join(cfg.Endpoints, ", ")
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: minConnectWait, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxConnectWait},
		MinConnectTimeout: defaultDialTimeout,
	})}
	if cfg.ServerName != "" {
		options = append(options, grpc.WithAuthority(cfg.ServerName))
	}
	if cfg.Username != "" {
		options = append(options, newLogin(cfg.Username, cfg.Password, cmp.Or(cfg.CallTimeout, defaultCallTimeout)).options()...)
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          cmp.Or(cfg.DialTimeout, defaultDialTimeout),
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxUnaryRetries:      libraryRetries,
		TLS:                  cfg.TLS,
		Logger:               ZapLogger(log),
		DialOptions:          options,
	})
	if err != nil {
		return nil, (&connection{name: name}).explain(context.Background(), err)
	}
	client := FromClient(c, name, log)
	client.conn.callTimeout = cmp.Or(cfg.CallTimeout, defaultCallTimeout)
	return client, nil
}

// Dial returns a client once the store has answered. After DialTimeout it gives up with an error
// that wraps ErrUnavailable and names the cause.
func Dial(ctx context.Context, cfg Config, log *slog.Logger) (*Client, error) {
	c, err := Open(cfg, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.DialTimeout, defaultDialTimeout))
	defer cancel()
	if _, err := c.status(ctx, math.MaxInt); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// FromClient wraps an existing client, such as one of an embedded server that needs no network.
// Messages use name instead of the endpoints. Closing the result closes the client.
func FromClient(c *clientv3.Client, name string, log *slog.Logger) *Client {
	return &Client{
		conn:     &connection{etcd: c, name: name, callTimeout: defaultCallTimeout, outage: &outage{log: log, name: name}},
		pageSize: defaultPageSize, probeEvery: progressEvery, log: log,
	}
}

// Close ends every call and watch of the client.
func (c *Client) Close() error {
	// A client without a connection returns its own cancellation as an error.
	if err := c.conn.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcd at %s: close: %w", c.conn.name, err)
	}
	return nil
}

// Status is what the store reports about itself.
type Status struct {
	ClusterID uint64        `json:"cluster_id"`
	MemberID  uint64        `json:"member_id"`
	Revision  int64         `json:"revision"` // 0 when the user may not read it
	Latency   time.Duration `json:"latency_ns"`
}

// Status reads one key, which need not exist: one round trip that a majority of the members must
// confirm. It fails with ErrUnavailable.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return c.status(ctx, callAttempts)
}

func (c *Client) status(ctx context.Context, attempts int) (Status, error) {
	var s Status
	err := c.conn.call(ctx, attempts, func(ctx context.Context) error {
		start := time.Now()
		resp, err := c.conn.etcd.Get(ctx, healthKey, clientv3.WithKeysOnly())
		s = Status{Latency: time.Since(start)}
		if codeOf(err) == codes.PermissionDenied {
			return nil // it has answered, which is the question
		}
		if err == nil {
			s.ClusterID, s.MemberID = resp.Header.GetClusterId(), resp.Header.GetMemberId()
			s.Revision = resp.Header.GetRevision()
		}
		return err
	})
	return s, err
}
