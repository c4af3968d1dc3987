package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestMain(m *testing.M) {
	etcd.Main()
	leaks.Main(m)
}

var quiet = slog.New(slog.DiscardHandler)

// server starts an etcd on loopback.
func server(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	if cfg.ClientURL == "" {
		cfg.ClientURL = inprocess.Loopback
	}
	return inprocess.Start(t, cfg)
}

// dial returns a client over the network.
func dial(t testing.TB, endpoints ...string) *kvstore.Client {
	t.Helper()
	c, err := kvstore.Dial(context.Background(), kvstore.Config{Endpoints: endpoints, DialTimeout: 20 * time.Second}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	return c
}

// entries returns n entries with keys in order.
func entries(prefix string, n int) []model.Entry {
	out := make([]model.Entry, n)
	for i := range out {
		out[i] = model.Entry{Key: fmt.Sprintf("%s%06d", prefix, i), Value: fmt.Append(nil, "value of ", i)}
	}
	return out
}

// closing closes something that has to close without an error.
func closing(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func write(t testing.TB, c *kvstore.Client, puts []model.Entry, deletes ...string) {
	t.Helper()
	if err := c.Write(context.Background(), puts, deletes); err != nil {
		t.Fatal(err)
	}
}

// list returns entries as they were written: without the revisions, of which it checks the bounds.
func list(t testing.TB, c *kvstore.Client, prefix string) ([]model.Entry, int64) {
	t.Helper()
	got, revision, err := c.List(context.Background(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range got {
		if e.Revision < 1 || e.Revision > revision {
			t.Errorf("%s was written at revision %d, and read at %d", e.Key, e.Revision, revision)
		}
		got[i].Revision = 0
	}
	return got, revision
}

func TestWriteIsListed(t *testing.T) {
	s := server(t, embedded.Config{})
	for name, c := range map[string]*kvstore.Client{"over the network": dial(t, s.Endpoints()...), "in process": s.Client()} {
		t.Run(name, func(t *testing.T) {
			root := "/" + strings.ReplaceAll(name, " ", "-") + "/"
			all := entries(root, 4500) // three pages, 45 transactions
			write(t, c, append(all, model.Entry{Key: "/other", Value: []byte("x")}), all[7].Key, all[4499].Key)
			want := append(append([]model.Entry{}, all[:7]...), all[8:4499]...)
			got, revision := list(t, c, root)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want - got +\n%s", diff)
			}
			if st, err := c.Status(t.Context()); err != nil || st.Revision != revision || st.ClusterID == 0 {
				t.Errorf("status is %+v, %v; want revision %d", st, err, revision)
			}
		})
	}
}

// TestListPagesAreOfOneRevision writes the first and the last key together, again and again:
// every list must find them equal.
func TestListPagesAreOfOneRevision(t *testing.T) {
	c := server(t, embedded.Config{}).Client()
	all := entries("/", 4500) // three pages
	first, last := all[0].Key, all[len(all)-1].Key
	write(t, c, append(all, model.Entry{Key: first}, model.Entry{Key: last}))
	stop, written := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				written <- nil
				return
			default:
			}
			v := fmt.Append(nil, i)
			if err := c.Write(context.Background(), []model.Entry{{Key: first, Value: v}, {Key: last, Value: v}}, nil); err != nil {
				written <- err
				return
			}
		}
	}()
	for range 20 {
		got, revision := list(t, c, "/")
		if a, b := got[0].Value, got[len(got)-1].Value; len(got) != len(all) || !bytes.Equal(a, b) {
			t.Errorf("at revision %d there are %d keys, the first is %q and the last %q", revision, len(got), a, b)
		}
	}
	close(stop)
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestWriteKeepsEmptyValues(t *testing.T) {
	c := server(t, embedded.Config{}).Client()
	write(t, c, []model.Entry{{Key: "/a"}})
	got, revision := list(t, c, "/")
	if len(got) != 1 || got[0].Value == nil {
		t.Errorf("the list is %v", got)
	}
	write(t, c, []model.Entry{{Key: "/a"}}, "/a")
	events, _ := collect(t, c, "/", revision+1, 2)
	if events[0].Value == nil || events[1].Value != nil {
		t.Errorf("the events are %v, want an empty value and a deletion", events)
	}
}

func TestListOfNothing(t *testing.T) {
	got, revision := list(t, server(t, embedded.Config{}).Client(), "/nothing/")
	if len(got) != 0 || revision != 1 {
		t.Errorf("got %v at %d", got, revision)
	}
}

func TestWriteTakesKeySeveralTimesInOrder(t *testing.T) {
	c := server(t, embedded.Config{}).Client()
	write(t, c, []model.Entry{
		{Key: "/a", Value: []byte("1")}, {Key: "/a", Value: []byte("2")}, {Key: "/b", Value: []byte("1")},
	}, "/b")
	got, _ := list(t, c, "/")
	if diff := cmp.Diff([]model.Entry{{Key: "/a", Value: []byte("2")}}, got); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

func TestWriteSplitsByBytesToo(t *testing.T) {
	c := dial(t, server(t, embedded.Config{}).Endpoints()...)
	puts := entries("/", 12)
	for i := range puts {
		puts[i].Value = bytes.Repeat([]byte{byte(i)}, 300<<10)
	}
	write(t, c, puts)
	if got, _ := list(t, c, "/"); len(got) != len(puts) {
		t.Errorf("%d keys arrived, want %d", len(got), len(puts))
	}
	err := c.Write(t.Context(), []model.Entry{{Key: "/big", Value: make([]byte, 2<<20)}}, nil)
	if err == nil || !strings.Contains(err.Error(), "/big") || errors.Is(err, kvstore.ErrUnavailable) {
		t.Errorf("a value that is too large: %v", err)
	}
}

func TestClientReportsAbsentStoreInTime(t *testing.T) {
	addr := programs.FreeAddress(t)
	begin := time.Now()
	_, err := kvstore.Dial(t.Context(), kvstore.Config{Endpoints: []string{addr}, DialTimeout: 300 * time.Millisecond}, quiet)
	if !errors.Is(err, kvstore.ErrUnavailable) {
		t.Fatalf("dial: %v", err)
	}
	if want := "etcd at " + addr + " does not answer: dial tcp " + addr + ": connect: connection refused"; err.Error() != want {
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
	if _, err := kvstore.Open(kvstore.Config{}, quiet); err == nil {
		t.Error("a client without endpoints was made")
	}
}

func TestClientTimesOutHangingStorePerAttempt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, l) })
	c, err := kvstore.Open(kvstore.Config{Endpoints: []string{l.Addr().String()}, CallTimeout: 50 * time.Millisecond}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	if _, _, err := c.List(t.Context(), "/"); !errors.Is(err, kvstore.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Write(ctx, []model.Entry{{Key: "/a"}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("write with a context that ended: %v", err)
	}
}

func TestOpenDoesNotWaitForStore(t *testing.T) {
	s := server(t, embedded.Config{})
	addr := s.Endpoints()[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := kvstore.Open(kvstore.Config{Endpoints: []string{addr}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	server(t, embedded.Config{ClientURL: "http://" + addr})
	write(t, c, []model.Entry{{Key: "/a"}}) // repeated until the connection is established
}
