package datasync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/marked"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const patience = 45 * time.Second // below the limit of make mutation for a suite

var quiet = slog.New(slog.DiscardHandler)

// state is a cluster, as it is meant and as a consumer sees it.
type state map[model.ID]proto.Message

func (s state) add(ms ...proto.Message) state {
	for _, m := range ms {
		id, err := model.IDOf(m)
		if err != nil {
			panic(err)
		}
		s[id] = m
	}
	return s
}

func pods(n int, node string) state {
	s := state{}
	for i := range n {
		s.add(newPod(fmt.Sprintf("pod-%05d", i), node))
	}
	return s
}

func newPod(name, node string) *model.Pod {
	return &model.Pod{
		Namespace: "shop", Name: name, NodeName: node, Phase: model.Pod_PHASE_RUNNING,
		Ips:     []string{"10.1.2.3"},
		NodeIps: []string{"192.168.0.1"},
		Labels:  []*model.Label{{Key: "app", Value: "web"}, {Key: "pod-template-hash", Value: "5d78c9869d"}, {Key: "tier", Value: "front"}},
	}
}

func entriesOf(t testing.TB, s state) []model.Entry {
	t.Helper()
	var out []model.Entry
	for id, m := range s {
		b, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, model.Entry{Key: model.Key(model.DefaultPrefix, id), Value: b})
	}
	slices.SortFunc(out, func(a, b model.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func podID(name string) model.ID { return model.ID{Kind: model.KindPod, Namespace: "shop", Name: name} }

// keyOf returns the key of a pod.
func keyOf(name string) string { return model.Key(model.DefaultPrefix, podID(name)) }

func dial(t testing.TB, s *embedded.Server) *kvstore.Client {
	t.Helper()
	c, err := kvstore.Dial(context.Background(), kvstore.Config{Endpoints: s.Endpoints(), CallTimeout: time.Second}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func write(t testing.TB, c *kvstore.Client, s state, deletes ...string) {
	t.Helper()
	writeRaw(t, c, entriesOf(t, s), deletes...)
}

func writeRaw(t testing.TB, c *kvstore.Client, puts []model.Entry, deletes ...string) {
	t.Helper()
	if err := c.Write(context.Background(), puts, deletes); err != nil {
		t.Fatal(err)
	}
}

// consumer applies what a watcher says to its view, and checks the contract of
// model.Changes on the way.
type consumer struct {
	*datasync.Watcher
	view     state
	changes  []model.Changes
	problems chan api.Problem
}

// run starts a watcher on a complete store; it ends with the test.
func run(t testing.TB, cfg datasync.Config) *consumer {
	t.Helper()
	cfg.Store = marked.Store(cfg.Store)
	return runBare(t, cfg)
}

// runBare starts a watcher that ends with the test.
func runBare(t testing.TB, cfg datasync.Config) *consumer {
	t.Helper()
	c := &consumer{view: state{}, problems: make(chan api.Problem, 1000)}
	if cfg.Log == nil {
		cfg.Log = quiet
	}
	cfg.OnProblem = func(p api.Problem) { c.problems <- p }
	c.Watcher = datasync.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run returned %v", err)
		}
	})
	return c
}

// next takes what is pending.
func (c *consumer) next(t testing.TB) model.Changes {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	changes, err := c.Next(ctx)
	if err != nil {
		t.Fatalf("next: %v; status %+v", err, c.Status())
	}
	if len(c.changes) == 0 && !changes.Resync {
		t.Error("the first changes are not a resync")
	}
	if n := len(c.changes); n > 0 && changes.Revision < c.changes[n-1].Revision && !changes.Resync {
		t.Errorf("the revision went from %d to %d", c.changes[n-1].Revision, changes.Revision)
	}
	c.changes = append(c.changes, changes)
	if changes.Resync {
		clear(c.view)
	}
	seen := make(map[model.ID]bool, len(changes.Deltas))
	for _, d := range changes.Deltas {
		if seen[d.ID] {
			t.Errorf("%s is named twice", d.ID)
		}
		seen[d.ID] = true
		if d.Value != nil {
			c.view[d.ID] = d.Value
			continue
		}
		delete(c.view, d.ID)
		if changes.Resync {
			t.Errorf("a resync names %s, which does not exist", d.ID)
		}
	}
	return changes
}

// reach takes changes until the view is the wanted state.
func (c *consumer) reach(t testing.TB, want state) {
	t.Helper()
	equal := func(a, b proto.Message) bool { return proto.Equal(a, b) }
	for deadline := time.Now().Add(patience); ; {
		if len(c.changes) > 0 && maps.EqualFunc(c.view, want, equal) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("want - got +\n%s", cmp.Diff(want, c.view, protocmp.Transform()))
		}
		c.next(t)
	}
}

// await polls the status until it is as wanted.
func (c *consumer) await(t testing.TB, what string, ok func(datasync.Status) bool) {
	t.Helper()
	programs.Eventually(t, func() error {
		if s := c.Status(); !ok(s) {
			return fmt.Errorf("%s was not reached: %+v", what, s)
		}
		return nil
	})
}
