package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/backends"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// discard is a logger that discards everything.
var discard = slog.New(slog.DiscardHandler)

// socketPath returns a path that is short enough for a Unix socket.
func socketPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(programs.SocketDir(t), "agent.sock")
}

// prepared returns an agent over an embedded store and dataplane that does not run yet.
func prepared(t testing.TB, change func(*config.Config)) *Agent {
	t.Helper()
	return preparedOn(t, inprocess.Start(t, embedded.Config{}), change)
}

// preparedOn is prepared, with a store that the test can end.
func preparedOn(t testing.TB, server *embedded.Server, change func(*config.Config)) *Agent {
	t.Helper()
	cfg := config.Config{Store: config.Store{Prefix: model.DefaultPrefix}, Node: config.Node{AllowTraffic: true}, VPP: config.VPP{Timeout: time.Minute}, Listen: config.Listen{APISocket: socketPath(t)}}
	if change != nil {
		change(&cfg)
	}
	a, err := newAgent(cfg, discard, server.Client(), "a test")
	if err != nil {
		t.Fatal(err)
	}
	a.api.Answers.Reflector = reflect.NewReflector(a.store, cfg.Store.Prefix, discard)
	return a
}

// run runs the agent until the test ends.
func (a *Agent) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
}

// running returns an agent that enforces the demo.
func running(t testing.TB, change func(*config.Config)) *Agent {
	t.Helper()
	a := prepared(t, change)
	a.run(t)
	a.apply(t, demo)
	return a
}

// apply reflects manifests and waits until they are enforced.
func (a *Agent) apply(t testing.TB, manifests string) {
	t.Helper()
	a.reflect(t, manifests)
	if err := a.cluster.Enforced(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// reflect writes manifests into the store.
func (a *Agent) reflect(t testing.TB, text string) {
	t.Helper()
	write(t, a.api.Answers.Reflector, text)
}

// write writes manifests into a store.
func write(t testing.TB, r *reflect.Reflector, text string) {
	t.Helper()
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text))
	if err != nil || len(load.Problems) > 0 {
		t.Fatal(err, load.Problems)
	}
	var values []proto.Message
	for _, o := range load.Objects {
		m, problems := convert.ToModel(o)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		values = append(values, m)
	}
	if _, err := r.Apply(t.Context(), values); err != nil {
		t.Fatal(err)
	}
}

// sw returns the embedded dataplane of an agent.
func sw(a *Agent) *vswitch.Switch { return find[*backends.Vswitch](a.backends).Switch }

// traffic sends the first packet of a flow in through the uplink.
func traffic(t testing.TB, a *Agent, f api.Flow) {
	t.Helper()
	for _, i := range sw(a).Interfaces() {
		if i.Tag == acl.UplinkTag {
			sw(a).Inject(i.Index, vswitch.FlowPacket(f))
			return
		}
	}
	t.Fatal("the dataplane has no uplink")
}

// ask sends a request to the debug API and returns the status and the body.
func (a *Agent) ask(method, path, body string) (int, string) {
	rec := a.answer(method, path, body)
	return rec.Code, rec.Body.String()
}

func (a *Agent) answer(method, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	a.api.Owner().Mux().ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec
}

// get decodes what a path answers.
func get[T any](t testing.TB, a *Agent, method, path, body string) (out T) {
	t.Helper()
	code, text := a.ask(method, path, body)
	if code != 200 {
		t.Fatalf("%s %s: status %d: %s", method, path, code, text)
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
	return out
}

// eventually waits until the agent's status lets a condition hold.
func (a *Agent) eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	programs.Eventually(t, func() error {
		if !holds() {
			return fmt.Errorf("%s does not happen: %+v", what, a.node.Plugin.Status())
		}
		return nil
	})
}

// demo is a server that lets one of two clients in, with pods on two nodes.
const demo = `
{apiVersion: v1, kind: Namespace, metadata: {name: demo}}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: demo, labels: {app: server, app.kubernetes.io/name: server}}
spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, hostIP: 192.168.0.1, podIPs: [{ip: 10.2.0.1}, {ip: "fd00:2::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, namespace: demo, labels: {app: friend, role: client}}
spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}, {name: http, containerPort: 53, protocol: UDP}]}]}
status: {phase: Running, hostIP: 192.168.0.1, podIPs: [{ip: 10.2.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: demo, labels: {app: stranger, role: client}}
spec: {nodeName: node-2}
status: {phase: Running, hostIP: 192.168.0.2, podIPs: [{ip: 10.2.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: finished, namespace: demo, labels: {app: job}}
spec: {nodeName: node-1}
status: {phase: Succeeded, podIPs: [{ip: 10.2.0.4}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: http}]}]
`
