package embedded_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// guarded starts a server with TLS, of which clients may write below /open/ only, and
// returns a client with a certificate.
func guarded(t *testing.T) (*embedded.Server, *clientv3.Client) {
	t.Helper()
	s, dial := guardedFrom(t)
	return s, dial("127.0.0.1")
}

// guardedFrom returns what connects from an address, too.
func guardedFrom(t *testing.T) (*embedded.Server, func(address string) *clientv3.Client) {
	t.Helper()
	a := etcd.NewAuthority(t)
	cert, key := a.Issue(t, "server")
	s := inprocess.Start(t, embedded.Config{
		ClientURL: "https://127.0.0.1:0", Writable: []string{"/open/"},
		TLS: embedded.TLS{Cert: cert, Key: key, ClientCA: a.CA},
	})
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return s, func(address string) *clientv3.Client {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + s.Endpoints()[0]}, TLS: cfg, DialTimeout: time.Minute, MaxUnaryRetries: 1,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
				return from.DialContext(ctx, "tcp", strings.TrimPrefix(to, "https://"))
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the server may be gone
		return c
	}
}

func TestServerLimitsWritesOfRemoteClients(t *testing.T) {
	s, c := guarded(t)
	ctx := t.Context()
	if err := s.Client().Write(ctx, nil, []string{"/state/x"}); err != nil {
		t.Errorf("the process itself may not write: %v", err)
	}
	op := func(ops ...clientv3.Op) error { _, err := c.Txn(ctx).Then(ops...).Commit(); return err }
	for name, call := range map[string]func() error{
		"read":              func() error { _, err := c.Get(ctx, "/", clientv3.WithPrefix()); return err },
		"write below":       func() error { _, err := c.Put(ctx, "/open/a", "1"); return err },
		"delete below":      func() error { _, err := c.Delete(ctx, "/open/", clientv3.WithPrefix()); return err },
		"both at once":      func() error { return op(clientv3.OpPut("/open/b", ""), clientv3.OpGet("/state/x")) },
		"lease":             func() error { _, err := c.Grant(ctx, 10); return err },
		"status of a proxy": func() error { _, err := c.MemberList(ctx); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"write elsewhere":        func() error { _, err := c.Put(ctx, "/state/a", "1"); return err },
		"write beside":           func() error { _, err := c.Put(ctx, "/open", "1"); return err },
		"delete elsewhere":       func() error { _, err := c.Delete(ctx, "/state/x"); return err },
		"delete from there on":   func() error { _, err := c.Delete(ctx, "/open/a", clientv3.WithFromKey()); return err },
		"delete beyond":          func() error { _, err := c.Delete(ctx, "/open/a", clientv3.WithRange("/p")); return err },
		"hidden in another":      func() error { return op(clientv3.OpPut("/open/b", ""), clientv3.OpPut("/state/b", "")) },
		"hidden in an else":      func() error { return op(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete("/state/x")})) },
		"compact":                func() error { _, err := c.Compact(ctx, 1); return err },
		"revoke a lease":         func() error { _, err := c.Revoke(ctx, 1); return err },
		"turn on users":          func() error { _, err := c.AuthEnable(ctx); return err },
		"add a member":           func() error { _, err := c.MemberAdd(ctx, []string{"http://10.0.0.1:2380"}); return err },
		"move the leader":        func() error { _, err := c.MoveLeader(ctx, 1); return err },
		"take the server's role": func() error { _, err := c.Defragment(ctx, c.Endpoints()[0]); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "may write below /open/ only") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerOnNetworkNeedsCertificates(t *testing.T) {
	a := etcd.NewAuthority(t)
	cert, key := a.Issue(t, "server")
	for name, cfg := range map[string]embedded.Config{
		"no authority of clients": {ClientURL: "https://127.0.0.1:0", TLS: embedded.TLS{Cert: cert, Key: key}},
		"plain beside TLS":        {ClientURL: inprocess.Loopback, TLS: embedded.TLS{Cert: cert, Key: key, ClientCA: a.CA}},
		"TLS without files":       {ClientURL: "https://127.0.0.1:0"},
		"a name":                  {ClientURL: "https://localhost:0", TLS: embedded.TLS{Cert: cert, Key: key, ClientCA: a.CA}},
	} {
		cfg.Log = slog.New(slog.DiscardHandler)
		if s, err := embedded.Start(t.Context(), cfg); err == nil {
			t.Errorf("%s: it started: %v", name, errors.Join(s.Close()))
		}
	}
}

func TestServerBoundsWhatRemoteClientsWrite(t *testing.T) {
	s, c := guarded(t)
	ctx := t.Context()
	large := strings.Repeat("x", 64<<10)
	for name, call := range map[string]func() error{
		"a value":         func() error { _, err := c.Put(ctx, "/open/a", large); return err },
		"values together": func() error { return put(ctx, c, "/open/a", large[:40<<10], "/open/b", large[:40<<10]) },
		"an unused condition": func() error {
			_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value("/open/a"), "=", large)).Then(clientv3.OpPut("/open/a", "")).Commit()
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "clients may write 65536 at once") {
			t.Errorf("too large is %s: %v", name, err)
		}
	}
	entries := make([]model.Entry, 4096)
	for i := range entries {
		entries[i] = model.Entry{Key: fmt.Sprintf("/open/%04d", i)}
	}
	if err := s.Client().Write(ctx, entries, nil); err != nil {
		t.Fatalf("the process itself may not write: %v", err)
	}
	for name, pairs := range map[string][]string{"one more": {"/open/more", ""}, "one more beside another": {"/open/0000", "", "/open/more", ""}} {
		if err := put(ctx, c, pairs...); err == nil || !strings.Contains(err.Error(), "clients have 4096 keys") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Put(ctx, "/open/0000", "new"); err != nil {
		t.Errorf("who has a key may not write it: %v", err)
	}
	if _, err := c.Delete(ctx, "/open/0001"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "/open/more", ""); err != nil {
		t.Errorf("where one was deleted: %v", err)
	}
}

// put puts pairs of keys and values at once.
func put(ctx context.Context, c *clientv3.Client, pairs ...string) error {
	var ops []clientv3.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, clientv3.OpPut(pairs[i], pairs[i+1]))
	}
	_, err := c.Txn(ctx).Then(ops...).Commit()
	return err
}

func TestServerRefusesClientThatWritesTooMuch(t *testing.T) {
	for name, once := range map[string]func(ctx context.Context, c *clientv3.Client) error{
		"values": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/open/flood", strings.Repeat("x", 60<<10))
			return err
		},
		"leases": func(ctx context.Context, c *clientv3.Client) error { _, err := c.Grant(ctx, 100_000); return err },
	} {
		t.Run(name, func(t *testing.T) {
			_, dial := guardedFrom(t)
			flood, other := dial("127.0.0.1"), dial("127.0.0.2")
			results := make(chan error, 400)
			for range cap(results) { // at once, so that a slow machine is no excuse
				go func() { results <- once(t.Context(), flood) }()
			}
			done := 0
			for range cap(results) {
				if err := <-results; err == nil {
					done++
				} else if !strings.Contains(err.Error(), "this client writes too much") {
					t.Fatal(err)
				}
			}
			if done < 10 || done > 200 {
				t.Errorf("%d of %d were done, want what fits in 1 MiB and 64 KiB a second", done, cap(results))
			}
			if _, err := other.Put(t.Context(), "/open/report", "of another node"); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

func TestServerLimitsLeasesOfRemoteClients(t *testing.T) {
	s, c := guarded(t)
	ctx := t.Context()
	own, err := c.Grant(ctx, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if own.TTL != 120 {
		t.Errorf("a lease lasts %d s, want 120", own.TTL)
	}
	if _, err := c.Put(ctx, "/open/report", "", clientv3.WithLease(own.ID)); err != nil {
		t.Fatal(err)
	}
	if kept, err := c.KeepAliveOnce(ctx, own.ID); err != nil || kept.TTL != 120 {
		t.Errorf("an own lease is not renewed: %v, %v", kept, err)
	}
	term, err := s.Client().Lead(ctx, "/leader", nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := term.Resign(ctx); err != nil {
			t.Error(err)
		}
	}()
	leader, err := c.Get(ctx, "/leader")
	if err != nil || len(leader.Kvs) != 1 || leader.Kvs[0].Lease == 0 {
		t.Fatalf("the leader is %v, %v", leader, err)
	}
	lease := clientv3.LeaseID(leader.Kvs[0].Lease)
	if kept, err := c.KeepAliveOnce(ctx, lease); err == nil {
		t.Errorf("a client renews the lease of the leader: %v", kept)
	}
	// Another key on the lease makes no difference.
	if _, err := c.Put(ctx, "/open/report", "", clientv3.WithLease(lease)); err != nil {
		t.Fatal(err)
	}
	if kept, err := c.KeepAliveOnce(ctx, lease); err == nil {
		t.Errorf("a client renews the lease of the leader, with a key of its own on it: %v", kept)
	}
}

func TestServerRefusesOtherStreams(t *testing.T) {
	_, c := guarded(t)
	r, err := c.Snapshot(t.Context())
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err == nil || !strings.Contains(err.Error(), "clients may watch, and renew leases only") {
		t.Errorf("a copy of the store: %v", err)
	}
	if w := <-c.Watch(t.Context(), "/open/", clientv3.WithCreatedNotify()); w.Err() != nil || !w.Created {
		t.Errorf("a watch: %v", w.Err())
	}
}
