package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// unanswered returns a reflector whose API server does not answer, over a real store.
func unanswered(t *testing.T) *Reflector {
	t.Helper()
	return reflecting(t, "http://127.0.0.1:1")
}

// reflecting returns a reflector of the cluster at an address, over a real store.
func reflecting(t *testing.T, apiServer string) *Reflector {
	t.Helper()
	server := inprocess.Start(t, embedded.Config{})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "` + apiServer + `"}}], contexts: [{name: c, context: {cluster: c}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	api, err := kube.Load(file, "test")
	if err != nil {
		t.Fatal(err)
	}
	r := newReflector(Config{EtcdPrefix: model.DefaultPrefix, Identity: "me", LeaderTTL: time.Second, Silence: time.Second, Sweep: time.Minute}, server.Client(), quiet)
	if r.source, err = kube.New(kube.Config{API: api, Sink: r.mirror, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Reflector) page(t *testing.T, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.api().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestReflectorReportsWhatItWaitsFor(t *testing.T) {
	r := unanswered(t)
	if code, body := r.page(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "Pod: not listed yet") {
		t.Errorf("/readyz is %d %s", code, body)
	}
	for _, kind := range kube.Kinds() {
		if err := r.mirror.Replace(kind, []proto.Message(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
	if code, body := r.page(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the API server does not answer") {
		t.Errorf("/readyz is %d %s", code, body)
	}
	if code, _ := r.page(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d", code)
	}
	_, body := r.page(t, "/metrics")
	for _, want := range []string{"sluice_ksr_leader 0", "sluice_ksr_synced 0", `sluice_ksr_objects{kind="pod"} 0`, `sluice_ksr_kind_synced{kind="pod"} 0`, "sluice_ksr_problems_total 0"} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("there is no %q in\n%s", want, body)
		}
	}
}

// TestReadyzNamesMissingParts: kinds that wait for the same are one line, and no
// line has the addresses that client-go asks.
func TestReadyzNamesMissingParts(t *testing.T) {
	r := unanswered(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.source.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	const want = "the API server does not answer\n" +
		"Namespace, NetworkPolicy, Node, Pod: cannot be listed: dial tcp 127.0.0.1:1: connect: connection refused\n" +
		"AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy: not listed yet\n"
	programs.Eventually(t, func() error {
		if _, body := r.page(t, "/readyz"); body != want {
			return fmt.Errorf("/readyz is\n%s\nwant\n%s", body, want)
		}
		return nil
	})
}

func TestReflectorLeadsOnlyWithCurrentState(t *testing.T) {
	for name, known := range map[string][]model.Kind{"nothing is known": nil, "the API server does not answer": kube.Kinds()} {
		t.Run(name, func(t *testing.T) {
			r := unanswered(t)
			for _, kind := range known {
				if err := r.mirror.Replace(kind, []proto.Message(nil), nil); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.Run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			if entries, _, err := r.store.List(t.Context(), "/"); err != nil || len(entries) > 0 {
				t.Errorf("the store holds %v, %v", entries, err)
			}
			if _, body := r.page(t, "/metrics"); !strings.Contains(body, "\nsluice_ksr_terms_total 0\n") {
				t.Errorf("it led:\n%s", body)
			}
		})
	}
}

func TestConfigErrorsNameSetting(t *testing.T) {
	good := func() Config {
		return Config{
			LeaderTTL: time.Second, Silence: time.Second, Sweep: time.Second, Embedded: embeddedEtcd{Dir: "x"}, Etcd: settings.Etcd{Endpoints: []string{"127.0.0.1:2379"}},
		}
	}
	c := good()
	if err := c.check(); err != nil || c.Identity == "" {
		t.Errorf("%v, and the identity is %q", err, c.Identity)
	}
	for name, change := range map[string]func(*Config){
		"--leader-ttl":     func(c *Config) { c.LeaderTTL = time.Millisecond },
		"--api-silence":    func(c *Config) { c.Silence = 0 },
		"--sweep-interval": func(c *Config) { c.Sweep = -1 },
		"--etcd-endpoints": func(c *Config) { c.Etcd.Endpoints = []string{"foo:bar:baz"} },
		"--etcd-dir":       func(c *Config) { c.Embedded.Use, c.Embedded.Dir = true, "" },
	} {
		c := good()
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
