package reflector

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/repo/reference"
)

// leading returns a replica that leads, of a cluster whose API server serves nothing.
func leading(t *testing.T) *Reflector { return ledBy(t, func(*Reflector) {}) }

// ledBy returns a replica that leads, after it was prepared.
func ledBy(t *testing.T, prepare func(*Reflector)) *Reflector {
	t.Helper()
	api := http.NewServeMux()
	api.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"kind":"APIGroupList"}`)) }) // the client reports an error
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	r := reflecting(t, server.URL)
	r.cfg.Silence, r.cfg.Cluster = time.Minute, "test"
	for _, kind := range kube.Kinds() {
		if err := r.mirror.Replace(kind, []proto.Message(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
	prepare(r)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	programs.Eventually(t, func() error {
		if !r.mirror.Status().Synced {
			return fmt.Errorf("the replica does not lead: %s", r.notReady())
		}
		return nil
	})
	return r
}

func TestMetricsAreThoseOfReference(t *testing.T) {
	r := leading(t)
	r.metrics.event(model.KindPod)
	reference.Check(t, "../..", "sluice-ksr", r.metrics.registry)
}
