package agent

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// lines is a log that a test reads while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// with returns the lines that have a text.
func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(strings.Split(l.text.String(), "\n"), func(s string) bool { return !strings.Contains(s, text) })
}

// TestAgentLogsOutageOnce has everything of an agent that reads the store, or writes it, wait for
// a store that comes later.
func TestAgentLogsOutageOnce(t *testing.T) {
	address := programs.FreeAddress(t)
	dir := t.TempDir()
	before := inprocess.Start(t, embedded.Config{Dir: dir})
	if _, err := reflect.NewReflector(before.Client(), model.DefaultPrefix, discard).Replace(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	var out lines
	log := slog.New(slog.NewTextHandler(&out, nil))
	store, err := kvstore.Open(kvstore.Config{Endpoints: []string{address}, CallTimeout: time.Second}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := config.Config{Node: config.Node{Name: "node-1"}, Store: config.Store{Prefix: model.DefaultPrefix, StatusInterval: 10 * time.Millisecond}, Listen: config.Listen{APISocket: socketPath(t)}, Ligato: config.Ligato{Target: "ligato", Label: "vpp1", Prefix: "/vnf-agent/"}}
	a, err := newAgent(cfg, log, store, "a test")
	if err != nil {
		t.Fatal(err)
	}
	a.run(t)
	a.eventually(t, "a failure to read the store", func() bool { return a.watcher.Status().LastError != "" })
	a.eventually(t, "the line of the outage", func() bool { return len(out.with("level=WARN")) > 0 })
	if w := out.with("level=WARN"); len(w) != 1 || !strings.Contains(w[0], address) || !strings.Contains(w[0], "connection refused") {
		t.Errorf("want one warning that names the store and the error:\n%s", strings.Join(w, "\n"))
	}

	inprocess.Start(t, embedded.Config{Dir: dir, ClientURL: "http://" + address})
	a.eventually(t, "the store is followed", func() bool { return a.watcher.Status().Following })
	a.eventually(t, "the end of the outage in the log", func() bool { return len(out.with("etcd answers again")) > 0 })
	if w, again := out.with("level=WARN"), out.with("etcd answers again"); len(w) != 1 || len(again) != 1 {
		t.Errorf("want no more warnings, and one line that the store answers again:\n%s", strings.Join(append(w, again...), "\n"))
	}
}
