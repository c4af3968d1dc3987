package agent

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/debugapi"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/renderer"
)

// relay stands between an agent and a vswitch. While it hangs, it takes what it gets as a process
// does that was stopped: nothing is passed on, and nothing is answered.
type relay struct {
	path string
	end  func() // closes the socket, as a process does that ends

	mu     sync.Mutex
	opened *sync.Cond
	hangs  bool
}

// newRelay listens until the test ends.
func newRelay(t *testing.T, vpp string) *relay {
	t.Helper()
	r := &relay{path: filepath.Join(filepath.Dir(socketPath(t)), "relay.sock")}
	r.opened = sync.NewCond(&r.mu)
	l, err := net.Listen("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", vpp)
			if err != nil {
				_ = client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
			conns.Go(func() { r.pass(server, client) })
			conns.Go(func() { r.pass(client, server) })
		}
	})
	r.end = func() {
		r.hang(false)
		cancel()
		_ = l.Close()
		conns.Wait()
	}
	t.Cleanup(r.end)
	return r
}

// pass passes on what comes.
func (r *relay) pass(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		r.wait()
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (r *relay) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.hangs {
		r.opened.Wait()
	}
}

func (r *relay) hang(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangs = on
	r.opened.Broadcast()
}

// relayed is an agent that enforces the demo in a vswitch behind a relay.
func relayed(t *testing.T) (a *Agent, r *relay, stop func() error) {
	t.Helper()
	r = newRelay(t, node1(t, vswitch.Options{}, "server", "friend", "stranger"))
	store := reflected(t, demo)
	cfg := config.Config{Node: config.Node{Name: "node-1", AllowTraffic: true}, Store: config.Store{Prefix: model.DefaultPrefix}, VPP: config.VPP{Socket: r.path, Timeout: time.Hour}, Listen: config.Listen{APISocket: socketPath(t)}}
	a, err := newAgent(cfg, discard, store, "a test")
	if err != nil {
		t.Fatal(err)
	}
	a.api.Answers.Reflector = reflect.NewReflector(store, cfg.Store.Prefix, discard)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	a.eventually(t, "the demo to be enforced", func() bool { s := a.node.Plugin.Status(); return s.Synced && s.InSync() })
	return a, r, func() error { cancel(); return <-done }
}

// hanging is an agent whose commit waits for a vswitch that does not answer.
func hanging(t *testing.T) (a *Agent, stop func() error) {
	t.Helper()
	a, r, stop := relayed(t)
	r.hang(true)
	a.reflect(t, another)
	a.eventually(t, "an Apply to hang", func() bool { return !a.node.Plugin.Status().BusySince.IsZero() })
	return a, stop
}

// another is a policy that the demo does not have.
const another = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: another, namespace: demo}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}
`

// TestAPIReadersDoNotWaitForCommit: while a vswitch does not answer, everything that can be asked
// is answered.
func TestAPIReadersDoNotWaitForCommit(t *testing.T) {
	a, stop := hanging(t)
	since := a.node.Plugin.Status().BusySince
	api := a.api.Owner()
	var slowest time.Duration
	var slow string
	for pattern := range api {
		if goesOn[pattern] {
			continue
		}
		began := time.Now()
		a.answers(t, api, pattern, questions[pattern])
		asksToWait := strings.Contains(questions[pattern], "timeout=")
		if took := time.Since(began); took > slowest && !asksToWait {
			slowest, slow = took, pattern
		}
		if now := a.node.Plugin.Status().BusySince; !now.Equal(since) {
			t.Fatalf("%s waited %s for the Apply since %s, now it is %s", pattern, time.Since(began), since, now)
		}
	}
	t.Logf("the slowest answer took %s: %s", slowest, slow)
	if s := a.node.Plugin.Status(); s.Seen <= s.Revision || s.InSync() {
		t.Errorf("what hangs looks enforced: %+v", s)
	}
	if err := stop(); err != nil {
		t.Log("the agent ended with", err) // the Apply was given up
	}
}

// TestReadinessAndLivenessFailWithStuckLoop: how long it has worked is known while it does.
func TestReadinessAndLivenessFailWithStuckLoop(t *testing.T) {
	a, stop := hanging(t)
	since := a.node.Plugin.AtWork()
	for took, want := range map[time.Duration][2]bool{0: {}, 11 * time.Second: {true}, 4 * time.Minute: {true, true}} {
		for i, most := range []time.Duration{debugapi.SlowTurn, debugapi.Standstill} {
			if why := debugapi.AtWork(since, since.Add(took), most); (why != "") != want[i] {
				t.Errorf("after %s of %s at most: %q", took, most, why)
			}
		}
	}
	if why := debugapi.AtWork(time.Time{}, time.Now(), 0); why != "" {
		t.Errorf("of a loop that waits: %q", why)
	}
	if since.IsZero() {
		t.Error("a loop whose commit hangs does not say since when")
	}
	if err := stop(); err != nil {
		t.Log("the agent ended with", err) // the Apply was given up
	}
}

// TestAgentEndsWhileCommitHangs: a vswitch that does not answer does not delay the agent's end.
func TestAgentEndsWhileCommitHangs(t *testing.T) {
	_, stop := hanging(t)
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		t.Logf("it took %s: %v", time.Since(began), err)
	case <-time.After(time.Minute): // the call may last an hour
		t.Error("the agent does not end")
	}
}

// TestReadinessNamesDataplaneThatDoesNotAnswer: it need not wait for an Apply to fail, nor for one
// to begin.
func TestReadinessNamesDataplaneThatDoesNotAnswer(t *testing.T) {
	a, r, stop := relayed(t)
	if up := metric(t, a, "sluice_dataplane_up"); up != 1 {
		t.Errorf("sluice_dataplane_up is %v, want 1", up)
	}
	r.hang(true)
	a.eventually(t, "a readiness that names the silence", func() bool {
		code, text := a.ask("GET", "/readyz", "")
		return code == 503 && strings.HasPrefix(text, "renderer acl: the dataplane has not answered for ")
	})
	if up := metric(t, a, "sluice_dataplane_up"); up != 0 {
		t.Errorf("sluice_dataplane_up is %v, want 0", up)
	}
	if s := get[view.Status](t, a, "GET", "/v1/status", ""); s.Renderers[0].Dataplane == "" && s.Renderers[0].Error == "" {
		t.Errorf("the status does not say it: %+v", s.Renderers[0])
	}
	r.hang(false)
	a.eventually(t, "an agent that is ready again", func() bool { code, _ := a.ask("GET", "/readyz", ""); return code == 200 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestCommitEndsWithDataplane: the dataplane is gone, and the next one waits for its rules.
func TestCommitEndsWithDataplane(t *testing.T) {
	a, r, stop := relayed(t)
	r.hang(true)
	a.reflect(t, another)
	a.eventually(t, "an Apply to hang", func() bool { return !a.node.Plugin.Status().BusySince.IsZero() })
	began := time.Now()
	r.end()
	a.eventually(t, "the Apply to end because of it", func() bool {
		return slices.ContainsFunc(a.node.States(), func(s *renderer.State) bool {
			return s.Err != nil && strings.Contains(s.Err.Error(), "the vswitch has closed the connection")
		})
	})
	t.Logf("it took %s", time.Since(began)) // a call may last an hour, an Apply 30 s
	if err := stop(); err != nil {
		t.Log("the agent ended with", err) // an Apply was given up
	}
}

// TestReadinessDoesNotWaitForCommit: a socket that is closed is enough.
func TestReadinessDoesNotWaitForCommit(t *testing.T) {
	a, r, stop := relayed(t)
	r.end()
	a.eventually(t, "the end of the connection", func() bool { return !a.node.States()[0].Connected })
	code, text := a.ask("GET", "/readyz", "")
	if code != 503 || !strings.HasPrefix(text, "renderer acl: not connected to the ") {
		t.Errorf("readyz says %d %q", code, text)
	}
	if up := metric(t, a, "sluice_dataplane_up"); up != 0 {
		t.Errorf("sluice_dataplane_up is %v, want 0", up)
	}
	if err := stop(); err != nil {
		t.Log("the agent ended with", err) // an Apply was given up
	}
}
