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

// Config says where the store is and how long to wait for it.
type Config struct {
	Endpoints   []string      // host:port or URLs of the members; at least one
	DialTimeout time.Duration // for the first answer in Dial; 5 s when zero
	CallTimeout time.Duration // for each attempt of a call; 2 s when zero
	TLS         *tls.Config   // nil for plain TCP
	Username    string        // empty when the store asks for none
	Password    string
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultCallTimeout = 2 * time.Second

	// A peer that vanished without a word is noticed after both together. Below
	// 5 s a server takes the pings for an attack.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second

	// How often a lost connection is tried again: soon, because policy is not
	// updated before it is back.
	minConnectWait = 100 * time.Millisecond
	maxConnectWait = 2 * time.Second

	// The library's own repetition has to end well before the call's timeout,
	// or the cause of a failure is lost behind "deadline exceeded".
	libraryRetries = 2
)

// Client reads, follows and writes the store. It is safe for concurrent use.
type Client struct {
	conn       *connection
	pageSize   int64         // keys per page of a List
	probeEvery time.Duration // how often watches ask for progress
	log        *slog.Logger
}

// Open returns a client without waiting for the store, so that a program can
// start before its store does; calls fail with ErrUnavailable until then. A user logs
// in with the first call, and again whenever the store wants it.
func Open(cfg Config, log *slog.Logger) (*Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoint is configured")
	}
	name := strings.Join(cfg.Endpoints, ", ")
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: minConnectWait, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxConnectWait},
		MinConnectTimeout: defaultDialTimeout,
	})}
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

// Dial returns a client once the store has answered. It gives up after
// DialTimeout with an error that wraps ErrUnavailable and says why.
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

// FromClient wraps a client that somebody else made, such as the one of an
// embedded server that needs no network. Name stands in messages for the
// endpoints. Closing the result closes the client.
func FromClient(c *clientv3.Client, name string, log *slog.Logger) *Client {
	return &Client{
		conn:     &connection{etcd: c, name: name, callTimeout: defaultCallTimeout, outage: &outage{log: log, name: name}},
		pageSize: defaultPageSize, probeEvery: progressEvery, log: log,
	}
}

// Close ends every call and watch of the client.
func (c *Client) Close() error {
	// A client without a connection reports its own cancellation.
	if err := c.conn.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcd at %s: close: %w", c.conn.name, err)
	}
	return nil
}

// Status is what the store said of itself.
type Status struct {
	ClusterID uint64        `json:"cluster_id"`
	MemberID  uint64        `json:"member_id"`
	Revision  int64         `json:"revision"` // 0 when the user may not read it
	Latency   time.Duration `json:"latency_ns"`
}

// Status asks the store for one key that it need not have: one round trip that a
// majority of the members has to confirm. It fails with ErrUnavailable.
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
			return nil // it answers, that is what was asked
		}
		if err == nil {
			s.ClusterID, s.MemberID = resp.Header.GetClusterId(), resp.Header.GetMemberId()
			s.Revision = resp.Header.GetRevision()
		}
		return err
	})
	return s, err
}
