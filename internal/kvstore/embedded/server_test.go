package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestServerInProcessListensNowhere(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{})
	if got := s.Endpoints(); len(got) != 0 {
		t.Errorf("endpoints are %v, want none", got)
	}
	c := s.Client()
	if err := c.Write(t.Context(), []model.Entry{{Key: "/a", Value: []byte("1")}}, nil); err != nil {
		t.Fatal(err)
	}
	got, revision, err := c.List(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Key != "/a" || revision != 2 {
		t.Errorf("the list is %v at %d, want /a at 2", got, revision)
	}
}

func TestServerWithPortZeroTakesFreePort(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback, PeerURL: "http://127.0.0.1:0"})
	if len(s.Endpoints()) != 1 {
		t.Fatalf("endpoints are %v, want one", s.Endpoints())
	}
	c, err := kvstore.Dial(t.Context(), kvstore.Config{Endpoints: s.Endpoints()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestServerKeepsDataInDirectory(t *testing.T) {
	dir := t.TempDir()
	first := inprocess.Start(t, embedded.Config{Dir: dir})
	if err := first.Client().Write(t.Context(), []model.Entry{{Key: "/a", Value: []byte("1")}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	got, _, err := inprocess.Start(t, embedded.Config{Dir: dir}).Client().List(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Value) != "1" {
		t.Errorf("after the restart the store holds %v", got)
	}
}

func TestServerRemovesTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := inprocess.Start(t, embedded.Config{})
	made, err := filepath.Glob(filepath.Join(os.TempDir(), "sluice-etcd-*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("temporary directories: %v, %v; want one", made, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(made[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", made[0], err)
	}
}

func TestCloseDoesNotWaitForWatches(t *testing.T) {
	for name, remote := range map[string]bool{"of a remote client": true, "of a client in process": false} {
		t.Run(name, func(t *testing.T) {
			s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
			c := s.Client()
			if remote {
				var err error
				c, err = kvstore.Dial(t.Context(), kvstore.Config{Endpoints: s.Endpoints()}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			seen, ended := make(chan int64, 1), make(chan error, 1)
			go func() {
				ended <- c.Watch(t.Context(), "/", 1, func(_ []model.Entry, revision int64) { seen <- revision })
			}()
			if err := c.Write(t.Context(), []model.Entry{{Key: "/a"}}, nil); err != nil {
				t.Fatal(err)
			}
			<-seen
			begin := time.Now()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("close took %v", took)
			}
			if err := <-ended; !errors.Is(err, kvstore.ErrDisconnected) && !errors.Is(err, kvstore.ErrUnavailable) {
				t.Errorf("the watch ended with %v", err)
			}
		})
	}
}

func TestStartErrorsNameSetting(t *testing.T) {
	dir := t.TempDir()
	taken := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback, Dir: dir})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]embedded.Config{
		"an address of the network": {ClientURL: "http://0.0.0.0:2379"},
		"a name":                    {ClientURL: "http://localhost:2379"},
		"no port":                   {ClientURL: "http://127.0.0.1"},
		"TLS":                       {ClientURL: "https://127.0.0.1:2379"},
		"a peer on the network":     {PeerURL: "http://10.0.0.1:2380"},
		"not a URL":                 {ClientURL: "http://[::1"},
		"a port that is taken":      {ClientURL: "http://" + taken.Endpoints()[0]},
		"a file for a directory":    {Dir: file},
		"a directory that is taken": {Dir: dir},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Log = slog.New(slog.DiscardHandler)
			if s, err := embedded.Start(t.Context(), cfg); err == nil {
				t.Errorf("it started: %v", errors.Join(s.Close()))
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Start(ctx, embedded.Config{Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a context that ended: %v", err)
	}
}
