package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// apiServer answers what a Source asks about kinds, and nothing else.
type apiServer struct {
	cluster  string   // the UID of kube-system
	plurals  []string // served of policyAlpha1; nil: the group is not there, as without its CRDs
	listed   bool     // the group is in the list of groups all the same
	fails    int      // a status for everything; zero: it answers
	text     string   // answers everything that is not found with this status 200
	askedFor atomic.Int32
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the client reports what is cut
	}
	group := metav1.APIGroup{Name: policyAlpha1.Group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: policyAlpha1.String(), Version: policyAlpha1.Version}}}
	switch here := a.plurals != nil; {
	case a.fails != 0:
		http.Error(w, "default backend - 404", a.fails)
	case r.URL.Path == "/api/v1/namespaces":
		a.askedFor.Add(1)
		say(map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "items": []any{
			map[string]any{"metadata": map[string]any{"name": metav1.NamespaceSystem, "uid": a.cluster}},
		}})
	case r.URL.Path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		if here || a.listed {
			list.Groups = append(list.Groups, group)
		}
		say(list)
	case r.URL.Path == "/apis/"+policyAlpha1.String() && here:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: policyAlpha1.String()}
		for _, name := range a.plurals {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		say(list)
	case a.text != "":
		_, _ = w.Write([]byte(a.text)) // likewise
	default:
		http.NotFound(w, r) // what a kube-apiserver says of a path that it does not have
	}
}

// looking returns a Source of an API server into a sink, with one kind that may be absent, and a
// function that asks for it at a time after the first.
func looking(t *testing.T, a *apiServer, into Sink) (s *Source, look func(after time.Duration)) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	s, err := New(Config{API: &rest.Config{Host: server.URL}, Sink: into, Log: slog.New(slog.DiscardHandler), Probe: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(resources(), func(r resource) bool { return r.kind == model.KindAdminNetworkPolicy })
	kinds, start := []*optional{{resource: resources()[i]}}, time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		if cancel(); kinds[0].stop != nil {
			kinds[0].stop()
		}
	})
	return s, func(after time.Duration) {
		s.now = func() time.Time { return start.Add(after) }
		s.look(ctx, policyAlpha1, kinds)
	}
}

const late = absentAfter + time.Second

// TestSourceRemovesUnservedKind: after a second answer, and not before.
func TestSourceRemovesUnservedKind(t *testing.T) {
	a, out := &apiServer{cluster: "c"}, &sink{}
	s, look := looking(t, a, out)
	look(0)
	out.want(t, "leave AdminNetworkPolicy")
	look(absentAfter - 1)
	out.want(t)
	if k := s.Status().Kinds[model.KindAdminNetworkPolicy]; k.Synced || k.Error == "" {
		t.Errorf("the kind is %+v", k)
	}
	look(late)
	out.want(t, "replace AdminNetworkPolicy:")
	look(2 * late)
	out.want(t)
	if k := s.Status().Kinds[model.KindAdminNetworkPolicy]; !k.Synced || k.Served || k.Error != "" {
		t.Errorf("the kind is %+v", k)
	}
	if n := a.askedFor.Load(); n != 2 {
		t.Errorf("the identity of the cluster was asked for %d times", n)
	}
}

// TestSourceBelievesOnlyTheAPIServerOfTheCluster: what removes a kind must be said by it.
func TestSourceBelievesOnlyTheAPIServerOfTheCluster(t *testing.T) {
	for name, set := range map[string]func(*apiServer){
		"404 of a proxy":                  func(a *apiServer) { a.fails = http.StatusNotFound },
		"503":                             func(a *apiServer) { a.fails = http.StatusServiceUnavailable },
		"another cluster":                 func(a *apiServer) { a.cluster = "d" },
		"an API server that has the kind": func(a *apiServer) { a.listed = true },
		"a page that is no JSON":          func(a *apiServer) { a.text = "<html>" },
		"JSON of something else":          func(a *apiServer) { a.text = "{}" },
		"a list of another version":       func(a *apiServer) { a.text = `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}` },
	} {
		t.Run(name, func(t *testing.T) {
			a, out := &apiServer{cluster: "c"}, &sink{}
			s, look := looking(t, a, out)
			if err := s.same(); err != nil {
				t.Fatal(err)
			}
			set(a)
			look(0)
			look(late)
			out.want(t)
			*a = apiServer{cluster: "c"}
			look(2 * late)
			look(3 * late)
			out.want(t, "leave AdminNetworkPolicy", "replace AdminNetworkPolicy:")
		})
	}
}

// TestSourceRemovesNothingThatIsServedAgain: an answer in between begins the time anew, and the
// kind is followed meanwhile.
func TestSourceRemovesNothingThatIsServedAgain(t *testing.T) {
	a, out := &apiServer{cluster: "c", plurals: []string{"adminnetworkpolicies"}}, &sink{}
	s, look := looking(t, a, out)
	look(0)
	for i := range time.Duration(3) {
		a.plurals = nil
		look((3*i + 1) * late)
		a.plurals = []string{"adminnetworkpolicies"}
		look((3*i + 2) * late)
	}
	out.want(t, "leave AdminNetworkPolicy", "leave AdminNetworkPolicy", "leave AdminNetworkPolicy")
	if k := s.Status().Kinds[model.KindAdminNetworkPolicy]; !k.Served {
		t.Errorf("the kind is %+v", k)
	}
	a.plurals = []string{"baselineadminnetworkpolicies"} // the version without the kind
	look(20 * late)
	look(21 * late)
	out.want(t, "leave AdminNetworkPolicy", "replace AdminNetworkPolicy:")
}

// TestSourceOfUnservedKindKeepsStore: etcd holds a policy of an earlier process. A new process
// becomes complete at once, and removes the policy only after the second answer.
func TestSourceOfUnservedKindKeepsStore(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	policy := &model.ClusterPolicy{Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Name: "deny", Tier: model.ClusterPolicy_TIER_ADMIN}
	value, err := model.Encode(policy)
	if err != nil {
		t.Fatal(err)
	}
	key := model.Key(model.DefaultPrefix, model.ID{Kind: model.KindAdminNetworkPolicy, Name: "deny"})
	if err := client.Write(t.Context(), []model.Entry{{Key: key, Value: value}}, nil); err != nil {
		t.Fatal(err)
	}
	mirror := reflect.NewMirror(model.DefaultPrefix, []model.Kind{model.KindAdminNetworkPolicy}, slog.New(slog.DiscardHandler))
	mirror.Identify(reflect.Identity{Cluster: "c", Level: model.Level})
	_, look := looking(t, &apiServer{cluster: "c"}, mirror)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mirror.Run(ctx, owned{client}, time.Hour) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	holds := func(want ...string) {
		t.Helper()
		programs.Eventually(t, func() error {
			entries, _, err := client.List(t.Context(), model.Root(model.DefaultPrefix))
			if err != nil {
				return err
			}
			var keys []string
			for _, e := range entries {
				keys = append(keys, e.Key)
			}
			if !slices.Equal(keys, want) || !mirror.Status().Synced {
				return errors.New("not yet")
			}
			return nil
		})
	}
	look(0)
	holds(model.MarkerKey(model.DefaultPrefix), key)
	look(late)
	holds(model.MarkerKey(model.DefaultPrefix))
}
