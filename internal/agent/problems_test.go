package agent

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// odd has everything that keeps policies of the demo from being enforced in full: on
// a VPP also a port of SCTP.
const odd = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: odd, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - from: [{ipBlock: {cidr: nonsense}}, {}, {podSelector: {matchExpressions: [{key: a, operator: Near}]}}]
    ports: [{port: 90, endPort: 80}, {port: 80}]
  - ports: [{port: nosuch}, {port: 3868, protocol: SCTP}]
`

// node1 is a dataplane that other processes reach by a socket, with interfaces for
// pods of the demo.
func node1(t *testing.T, o vswitch.Options, pods ...string) string {
	t.Helper()
	sw := vswitch.New(o)
	for _, name := range pods {
		sw.AddInterface(name, acl.InterfaceTag(api.PodID{Namespace: "demo", Name: name}))
	}
	return serving(t, sw)
}

// serving gives a vswitch an uplink and a socket, until the test ends.
func serving(t *testing.T, sw *vswitch.Switch) string {
	t.Helper()
	sw.AddInterface("uplink0", acl.UplinkTag)
	path := filepath.Join(filepath.Dir(socketPath(t)), "vpp.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sw.Serve(ctx, l) // ends with the context
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
	})
	return path
}

// reflected returns a store that holds manifests, whatever is wrong with them.
func reflected(t *testing.T, text string) *kvstore.Client {
	t.Helper()
	server := inprocess.Start(t, embedded.Config{})
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var values []proto.Message
	for _, o := range load.Objects {
		if m, _ := convert.ToModel(o); m != nil {
			values = append(values, m)
		}
	}
	if _, err := reflect.NewReflector(server.Client(), model.DefaultPrefix, discard).Apply(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	return server.Client()
}

// once runs an agent of a node on a store until it has answered.
func once(t *testing.T, store *kvstore.Client, vpp string, answered func(*Agent)) {
	t.Helper()
	cfg := config.Config{Node: config.Node{Name: "node-1", AllowTraffic: true}, Store: config.Store{Prefix: model.DefaultPrefix}, VPP: config.VPP{Socket: vpp, Timeout: time.Minute}, Listen: config.Listen{APISocket: socketPath(t)}}
	a, err := newAgent(cfg, discard, store, "a test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	answered(a)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func policyNamed(t *testing.T, a *Agent, name string) view.Policy {
	t.Helper()
	all := get[[]view.Policy](t, a, "GET", "/v1/policies?namespace=demo", "")
	i := slices.IndexFunc(all, func(p view.Policy) bool { return p.Policy.Name == name })
	if i < 0 {
		t.Fatalf("there is no policy %s: %+v", name, all)
	}
	return all[i]
}

func fieldsOf(problems []api.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Field+" "+string(p.Class))
	}
	return out
}

// The store carries what was wrong with a manifest as peers and ports that match
// nothing, so an agent that never saw the manifest reports it, whenever it starts.
func TestAgentReportsProblemsAgainAfterRestart(t *testing.T) {
	store := reflected(t, demo+"---"+odd)
	object := []string{"spec.ingress[0].from[0] object", "spec.ingress[0].from[1] object", "spec.ingress[0].from[2].podSelector object",
		"spec.ingress[0].ports[0] object", "spec.ingress[1].ports named-port"}
	for name, tt := range map[string]struct {
		options vswitch.Options
		want    []string
	}{
		"embedded vswitch": {vswitch.Options{}, object},
		"like a VPP":       {vswitch.Options{LikeVPP: true}, append(slices.Clone(object), "spec.ingress[1] dataplane")},
	} {
		t.Run(name, func(t *testing.T) {
			vpp := node1(t, tt.options, "server", "friend")
			for range 2 { // the second agent finds what the first left
				once(t, store, vpp, func(a *Agent) {
					if err := a.cluster.Enforced(t.Context()); err != nil {
						t.Fatal(err)
					}
					p := policyNamed(t, a, "odd")
					if got := fieldsOf(p.Problems); !slices.Equal(got, tt.want) || p.Enforced != view.EnforcedPartly {
						t.Errorf("enforced %q, problems %q\nwant %q", p.Enforced, got, tt.want)
					}
					if p := policyNamed(t, a, "server"); p.Enforced != view.EnforcedFully {
						t.Errorf("policy %+v", p)
					}
					if got := metric(t, a, "sluice_policy_problems"); got != float64(len(tt.want)) || metric(t, a, "sluice_policies_partially_enforced") != 1 {
						t.Errorf("metrics count %v problems, want %d", got, len(tt.want))
					}
					if s := get[view.Status](t, a, "GET", "/v1/status", ""); s.Unenforced != 1 || len(s.Problems) != len(tt.want) {
						t.Errorf("status %+v", s)
					}
				})
			}
		})
	}
}

func TestStatusOfPolicyIsPendingWithoutInterface(t *testing.T) {
	store := reflected(t, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friend, namespace: demo}
spec: {podSelector: {matchLabels: {app: friend}}}
`)
	once(t, store, node1(t, vswitch.Options{}, "server"), func(a *Agent) {
		a.eventually(t, "the policy of the friend is pending", func() bool {
			all := get[[]view.Policy](t, a, "GET", "/v1/policies?name=friend", "")
			return len(all) == 1 && all[0].Enforced == view.EnforcedPending && all[0].Pending == "1 of 1 local pod without an interface in the vswitch"
		})
		if p := policyNamed(t, a, "server"); p.Enforced != view.EnforcedFully {
			t.Errorf("policy %+v", p)
		}
	})
	once(t, store, filepath.Join(t.TempDir(), "nobody"), func(a *Agent) {
		a.eventually(t, "every policy is pending", func() bool {
			all := get[[]view.Policy](t, a, "GET", "/v1/policies", "")
			return len(all) == 2 && !slices.ContainsFunc(all, func(p view.Policy) bool {
				return p.Enforced != view.EnforcedPending || !strings.Contains(p.Pending, "not connected")
			})
		})
	})
}
