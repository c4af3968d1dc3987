package embedded_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/etcd"
	"github.com/sluice-net/sluice/tests/etcd/inprocess"
)

// guarded starts a server with TLS, of which clients may write below /open/ only, and
// returns a client with a certificate.
func guarded(t *testing.T) (*embedded.Server, *clientv3.Client) {
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
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.Endpoints()[0]}, TLS: cfg, DialTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may be gone
	return s, c
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
