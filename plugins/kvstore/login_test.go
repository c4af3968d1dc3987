package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// asPassword returns a client of the user without waiting for the store.
func asPassword(t *testing.T, members *etcd.Cluster) *kvstore.Client {
	t.Helper()
	return asPasswordWithin(t, members, 5*time.Second)
}

func asPasswordWithin(t *testing.T, members *etcd.Cluster, call time.Duration) *kvstore.Client {
	t.Helper()
	c, err := kvstore.Open(kvstore.Config{Endpoints: members.Endpoints(), Username: "u", Password: "secret", CallTimeout: call}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	return c
}

func TestLoginDoesNotWaitForStore(t *testing.T) {
	t.Parallel() // it waits, most of the time
	members := etcd.Start(t, etcd.Options{})
	members.Users(t, "u", "secret", "/mine/")
	members.Kill(0)
	c := asPasswordWithin(t, members, time.Second)
	_, _, err := c.List(t.Context(), "/mine/")
	if !errors.Is(err, kvstore.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("without the store: %v", err)
	}
	members.Restart(0)
	programs.Eventually(t, func() error { return c.Write(t.Context(), put("/mine/a"), nil) })
	if got, _ := list(t, c, "/mine/"); len(got) != 1 {
		t.Errorf("%v is listed", got)
	}
	if err := c.Write(t.Context(), put("/else"), nil); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the user writes elsewhere: %v", err)
	}
}

// TestLoginIsRepeatedAfterRestart restarts the store, which drops all tokens, and changes
// permissions, which invalidates tokens.
func TestLoginIsRepeatedAfterRestart(t *testing.T) {
	members := etcd.Start(t, etcd.Options{})
	members.Users(t, "u", "secret", "/mine/")
	c := asPassword(t, members)
	programs.Eventually(t, func() error { return c.Write(t.Context(), put("/mine/a"), nil) })

	root, err := clientv3.New(clientv3.Config{Endpoints: members.Endpoints(), DialTimeout: patience, Username: "root", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, root)
	for i := range 3 {
		if _, err := root.RoleAdd(t.Context(), fmt.Sprint("new-", i)); err != nil {
			t.Fatal(err)
		}
		if err := c.Write(t.Context(), put("/mine/b"), nil); err != nil {
			t.Errorf("after a change of the roles: %v", err)
		}
	}
	members.Kill(0)
	members.Restart(0)
	programs.Eventually(t, func() error { return c.Write(t.Context(), put("/mine/c"), nil) })
	_, revision := list(t, c, "/mine/")
	members.Kill(0)
	members.Restart(0)
	// A watch is a stream, which has to begin with a token that is known.
	programs.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := c.Watch(ctx, "/mine/", revision, func([]model.Entry, int64) { cancel() })
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// TestLoginBeforeAuthIsEnabled is served before the store asks for users, and
// after.
func TestLoginBeforeAuthIsEnabled(t *testing.T) {
	members := etcd.Start(t, etcd.Options{})
	c := asPassword(t, members)
	programs.Eventually(t, func() error { return c.Write(t.Context(), put("/mine/a"), nil) })
	members.Users(t, "u", "secret", "/mine/")
	if err := c.Write(t.Context(), put("/mine/b"), nil); err != nil {
		t.Error(err)
	}
	if err := c.Write(t.Context(), put("/else"), nil); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the user writes elsewhere: %v", err)
	}
}

// TestLoginMayTakeLongerThanCall uses a store as slow as one in which all agents log in at once:
// checking a password takes several times as long as a call may.
func TestLoginMayTakeLongerThanCall(t *testing.T) {
	if testing.Short() {
		t.Skip("the store needs its processor for it, and with the race detector ten times as long")
	}
	members := etcd.Start(t, etcd.Options{Bcrypt: 12})
	members.Users(t, "u", "secret", "/mine/")
	c := asPasswordWithin(t, members, 100*time.Millisecond)
	programs.Eventually(t, func() error { return c.Write(t.Context(), put("/mine/a"), nil) })
}
