package kvstore_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// tlsOf returns the TLS settings of a user; one without a name has no certificate.
func tlsOf(t *testing.T, a *etcd.Authority, user string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(pem)
	if user != "" {
		pair, err := tls.LoadX509KeyPair(a.Issue(t, user))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// asUser returns a client with the certificate of a user.
func asUser(t *testing.T, members *etcd.Cluster, a *etcd.Authority, cfg kvstore.Config, user string) (*kvstore.Client, error) {
	t.Helper()
	for _, e := range members.Endpoints() {
		cfg.Endpoints = append(cfg.Endpoints, "https://"+e)
	}
	cfg.TLS = tlsOf(t, a, user)
	cfg.DialTimeout, cfg.CallTimeout = cmp.Or(cfg.DialTimeout, patience), patience // passwords take their time on a busy machine
	c, err := kvstore.Dial(t.Context(), cfg, quiet)
	if err == nil {
		t.Cleanup(func() { closing(t, c) })
	}
	return c, err
}

// guideCommands returns the commands of etcdctl in the guide, one by one.
func guideCommands(t *testing.T) (out [][]string) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "docs", "guide", "ksr.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, f)
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "etcdctl "); ok {
			out = append(out, strings.Fields(rest))
		}
	}
	return out
}

// ctl does what etcdctl does for a command of the guide.
func ctl(ctx context.Context, c *clientv3.Client, args []string) (err error) {
	prefix := slices.Contains(args, "--prefix=true")
	noPassword := slices.Contains(args, "--no-password")
	args = slices.DeleteFunc(args, func(s string) bool { return strings.HasPrefix(s, "--") })
	switch verb := strings.Join(args[:2], " "); {
	case verb == "role add":
		_, err = c.RoleAdd(ctx, args[2])
	case verb == "role grant-permission" && prefix:
		kind := map[string]clientv3.PermissionType{"read": clientv3.PermissionType(clientv3.PermRead), "readwrite": clientv3.PermissionType(clientv3.PermReadWrite)}[args[3]]
		_, err = c.RoleGrantPermission(ctx, args[2], args[4], clientv3.GetPrefixRangeEnd(args[4]), kind)
	case verb == "role grant-permission":
		kind := map[string]clientv3.PermissionType{"readwrite": clientv3.PermissionType(clientv3.PermReadWrite)}[args[3]]
		_, err = c.RoleGrantPermission(ctx, args[2], args[4], "", kind)
	case verb == "user add" && noPassword:
		_, err = c.UserAddWithOptions(ctx, args[2], "", &clientv3.UserAddOptions{NoPassword: true})
	case verb == "user grant-role":
		if args[3] == "root" {
			_, _ = c.RoleAdd(ctx, "root") // the server reports to etcdctl, too, that the role exists
		}
		_, err = c.UserGrantRole(ctx, args[2], args[3])
	case verb == "auth enable":
		_, err = c.AuthEnable(ctx)
	default:
		err = errors.New("the test does not know " + verb)
	}
	return err
}

// secured starts an etcd that was set up by the commands of the guide.
func secured(t *testing.T) (*etcd.Cluster, *etcd.Authority) {
	t.Helper()
	a := etcd.NewAuthority(t)
	members := etcd.Start(t, etcd.Options{Authority: a})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + members.Endpoints()[0]}, TLS: tlsOf(t, a, "root"), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	commands := guideCommands(t)
	if len(commands) < 10 {
		t.Fatalf("the guide has %d commands", len(commands))
	}
	for _, args := range commands {
		if args[0] == "get" {
			continue
		}
		if err := ctl(ctx, c, slices.Clone(args)); err != nil {
			t.Fatalf("etcdctl %s: %v", strings.Join(args, " "), err)
		}
	}
	// A user with a password, of the same role.
	if _, err := c.UserAdd(ctx, "agent-by-password", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserGrantRole(ctx, "agent-by-password", "sluice-agent-node-1"); err != nil {
		t.Fatal(err)
	}
	return members, a
}

func TestClientRolesOfGuideGrantLeast(t *testing.T) {
	members, a := secured(t)
	reflector, err := asUser(t, members, a, kvstore.Config{}, "sluice-ksr")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := asUser(t, members, a, kvstore.Config{}, "sluice-agent-node-1")
	if err != nil {
		t.Fatal(err)
	}
	byPassword, err := asUser(t, members, a, kvstore.Config{Username: "agent-by-password", Password: "secret"}, "sluice-cni-node-1")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = model.DefaultPrefix
	state := put(model.Root(prefix) + "pod/shop/web")

	term, err := reflector.Lead(t.Context(), model.LeaderKey(prefix, "ksr"), []byte("{}"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Write(t.Context(), state, nil); err != nil {
		t.Errorf("the reflector may not write: %v", err)
	}
	if err := reflector.Write(t.Context(), put(model.StatusRoot(prefix)+"n1"), nil); err == nil {
		t.Error("the reflector writes what agents tell")
	}
	for name, c := range map[string]*kvstore.Client{"certificate": agent, "password": byPassword} {
		if got, _, err := c.List(t.Context(), model.Root(prefix)); err != nil || len(got) != 1 {
			t.Errorf("%s: the agent reads %v, %v", name, got, err)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, key := range []string{state[0].Key, model.LeaderKey(prefix, "ksr"), model.VswitchRoot(prefix) + "node-1/x", model.StatusRoot(prefix) + "node-2", model.StatusRoot(prefix) + "node-10",
			model.StatusRoot(prefix) + "node-1/x", model.StatusRoot(prefix), "/else"} {
			if err := c.Write(t.Context(), put(key), nil); err == nil || !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("%s: the agent writes %s: %v", name, key, err)
			}
		}
		if err := c.Write(t.Context(), nil, []string{state[0].Key}); err == nil {
			t.Errorf("%s: the agent deletes", name)
		}
		if err := c.Write(t.Context(), nil, []string{model.StatusRoot(prefix) + "node-2"}); err == nil {
			t.Errorf("%s: the agent deletes what another node reports", name)
		}
		if _, _, err := c.List(t.Context(), "/"); err == nil {
			t.Errorf("%s: the agent reads everything", name)
		}
		b := c.LeasedKey(model.StatusRoot(prefix)+"node-1", time.Minute)
		if err := b.Put(t.Context(), []byte("{}")); err != nil {
			t.Errorf("%s: the agent may not tell how far it is: %v", name, err)
		}
		if err := b.Revoke(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := c.Watch(ctx, model.Root(prefix), 1, func([]model.Entry, int64) { cancel() })
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the watch ended with %v", name, err)
		}
		if err := c.Watch(t.Context(), "/else", 1, func([]model.Entry, int64) {}); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: a watch elsewhere ended with %v", name, err)
		}
	}
	cni, err := asUser(t, members, a, kvstore.Config{}, "sluice-cni-node-1")
	if err != nil {
		t.Fatal(err)
	}
	own := put(model.InterfaceKey(prefix, "node-1", "shop", "web", "tap0"))
	if err := cni.Write(t.Context(), own, nil); err != nil {
		t.Errorf("who plugs pods in may not name interfaces: %v", err)
	}
	for _, key := range []string{
		state[0].Key, model.StatusRoot(prefix) + "node-1", model.InterfaceKey(prefix, "node-2", "shop", "web", "tap0"), model.VswitchRoot(prefix) + "node-10/interface/a/b/c",
	} {
		if err := cni.Write(t.Context(), put(key), nil); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("who plugs pods of node-1 in writes %s: %v", key, err)
		}
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClientErrorsNameBadCredentials(t *testing.T) {
	members, a := secured(t)
	quick := kvstore.Config{DialTimeout: time.Second}
	if _, err := asUser(t, members, a, quick, ""); !errors.Is(err, kvstore.ErrUnavailable) {
		t.Errorf("without a certificate: %v", err)
	}
	other := etcd.NewAuthority(t)
	programs.Eventually(t, func() error { // the answer of a busy machine may come too late for a first try
		_, err := asUser(t, members, other, quick, "sluice-agent-node-1")
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("with the certificate of another authority: %w", err)
		}
		return nil
	})
	if _, err := asUser(t, members, a, kvstore.Config{Username: "agent-by-password", Password: "wrong"}, "sluice-agent-node-1"); err == nil || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("with a wrong password: %v", err)
	}
}
