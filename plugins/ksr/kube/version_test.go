package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/api/model"
)

// versions is an API server that has one ClusterNetworkPolicy, in the versions that it serves.
type versions struct {
	mu     sync.Mutex
	served map[string]bool
}

func (v *versions) serve(served ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.served = map[string]bool{}
	for _, version := range served {
		v.served[version] = true
	}
}

func (v *versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version, plural, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/policy.networking.k8s.io/"), "/")
	v.mu.Lock()
	served := v.served[version]
	v.mu.Unlock()
	say := func(status int, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...) // the client may be gone
	}
	switch {
	case r.URL.Path == "/apis":
		say(http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case !served:
		say(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case plural == "":
		say(http.StatusOK, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"policy.networking.k8s.io/%s","resources":[{"name":"clusternetworkpolicies","kind":"ClusterNetworkPolicy","verbs":["list"]}]}`, version)
	case r.URL.Query().Get("sendInitialEvents") != "":
		say(http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		item := map[string]any{
			"apiVersion": "policy.networking.k8s.io/" + version, "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": "of-" + version},
			"spec": map[string]any{"tier": "Admin", "priority": 1, "subject": map[string]any{"namespaces": map[string]any{}}},
		}
		text, _ := json.Marshal(item) // of maps and texts
		say(http.StatusOK, `{"apiVersion":"policy.networking.k8s.io/%s","kind":"ClusterNetworkPolicyList","metadata":{"resourceVersion":"1"},"items":[%s]}`, version, text)
	}
}

// publishing passes on what a sink receives.
type publishing struct {
	sink
	replaced chan string
}

func (s *publishing) Replace(kind model.Kind, values []proto.Message, keep map[model.ID]proto.Message) error {
	err := s.sink.Replace(kind, values, keep)
	s.replaced <- s.received[len(s.received)-1]
	return err
}

// TestSourceFollowsServedVersion: the newest one that is served. Its objects are replaced as a
// whole when another version comes, and are never gone meanwhile.
func TestSourceFollowsServedVersion(t *testing.T) {
	server := &versions{}
	server.serve("v1alpha2")
	api := httptest.NewServer(server)
	defer api.Close()
	out := &publishing{replaced: make(chan string)}
	s, err := New(Config{API: &rest.Config{Host: api.URL}, Sink: out, Log: slog.New(slog.DiscardHandler), Probe: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.asks = func(context.Context) (string, error) { return "c", nil }
	var policies []*optional
	for _, r := range resources() {
		if r.kind == model.KindClusterNetworkPolicy {
			policies = append(policies, &optional{resource: r})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.discover(ctx, policies[0].version, policies) }()
	for _, step := range []struct {
		serve []string
		want  string
	}{
		{[]string{"v1alpha2"}, "replace ClusterNetworkPolicy: of-v1alpha2"},
		{[]string{"v1alpha2", "v1beta1"}, "replace ClusterNetworkPolicy: of-v1beta1"},
		{[]string{"v1alpha2"}, "replace ClusterNetworkPolicy: of-v1alpha2"},
		{[]string{"v1beta1"}, "replace ClusterNetworkPolicy: of-v1beta1"},
	} {
		server.serve(step.serve...)
		select {
		case got := <-out.replaced:
			if got != step.want {
				t.Errorf("served are %v: %q, want %q", step.serve, got, step.want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("served are %v: nothing in a minute", step.serve)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
