package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cli/reach"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// simulated are the kubelets and agents of many nodes: one server, to which the API server sends what
// is executed in any pod.
type simulated struct {
	t       testing.TB
	server  *httptest.Server
	sockets map[string]string // of agents, by pod
}

func (s *simulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/") // /exec/NAMESPACE/POD/CONTAINER
	command := r.URL.Query()["command"]
	if len(parts) != 5 || parts[1] != "exec" || len(command) == 0 {
		http.NotFound(w, r)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() { <-replied; streams <- s }()
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }() // all streams are
	by := map[string]httpstream.Stream{}
	for range 4 {
		stream := <-streams
		by[stream.Headers().Get(corev1.StreamType)] = stream
	}
	socket, status := s.sockets[parts[3]], `{"metadata":{},"status":"Success"}`
	if socket == "" {
		status = `{"metadata":{},"status":"Failure","message":"exec failed: \"sluicectl\": executable file not found in $PATH"}`
	} else if err := reach.Stdio(r.Context(), socket, by[corev1.StreamTypeStdin], by[corev1.StreamTypeStdout]); err != nil && !errors.Is(err, net.ErrClosed) {
		_, _ = io.WriteString(by[corev1.StreamTypeStderr], err.Error()) // who asked may be gone
	}
	_, _ = io.WriteString(by[corev1.StreamTypeError], status) // as above
}

// startSimulated puts nodes with agents into a cluster, each with a policy that it enforces.
func startSimulated(t testing.TB, c *cluster, nodes int) *simulated {
	t.Helper()
	s := &simulated{t: t, sockets: map[string]string{}}
	s.server = httptest.NewUnstartedServer(s)
	s.server.EnableHTTP2 = false // streams take over a connection
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	_, port, _ := net.SplitHostPort(s.server.Listener.Addr().String())
	number, _ := strconv.Atoi(port) // that of a listener
	dir := programs.SocketDir(t)
	var made sync.WaitGroup
	for i := range nodes {
		node, pod := fmt.Sprintf("node-%d", i), fmt.Sprintf("agent-%d", i)
		s.sockets[pod] = filepath.Join(dir, strconv.Itoa(i))
		serveAgent(t, s.sockets[pod], node)
		made.Go(func() { s.put(c, node, pod, number) })
	}
	made.Wait()
	return s
}

// serveAgent answers as the agent of a node.
func serveAgent(t testing.TB, socket, node string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	say := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(v) // who asked may be gone
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/policies", say([]view.Policy{{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Enforced: view.EnforcedFully}}))
	mux.HandleFunc("GET /v1/status", say(view.Status{Node: node, Version: "v1"}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
}

// put writes a node and the pod of its agent to the API server.
func (s *simulated) put(c *cluster, node, pod string, kubelet int) {
	c.patch(object("Node", "", node))
	status := object("Node", "", node)
	status.Object["status"] = map[string]any{
		"addresses":       []any{map[string]any{"type": "InternalIP", "address": "127.0.0.1"}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": int64(kubelet)}},
	}
	c.patch(status, "status")
	o := object("Pod", reach.DefaultNamespace, pod)
	o.SetLabels(map[string]string{"app.kubernetes.io/part-of": "sluice", "app.kubernetes.io/component": "agent"})
	o.Object["spec"] = map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "agent", "image": "i"}}}
	c.patch(o)
	running := object("Pod", reach.DefaultNamespace, pod)
	running.Object["status"] = map[string]any{"phase": "Running", "containerStatuses": []any{map[string]any{
		"name": "agent", "image": "i", "imageID": "i", "ready": true, "restartCount": int64(0),
		"state": map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}},
	}}}
	c.patch(running, "status")
}

// bindRole installs the ClusterRole of deploy/ for a user, as docs/guide/sluicectl.md says.
func (c *cluster) bindRole(user string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "ksr", "ksr.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(doc, "kind: ClusterRole\nmetadata:\n  name: sluicectl\n") {
			c.apply(doc)
		}
	}
	c.apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sluicectl, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluicectl}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]
`, user))
}

// askFromElsewhere runs sluicectl with a kubeconfig, on a machine without an agent.
func askFromElsewhere(t testing.TB, kubeconfig string, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("sluicectl"), append(args, "--kubeconfig", kubeconfig)...)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// TestReachAsksNodesThroughAPIServer asks 100 simulated agents behind a real API server, with the
// documented role, and without it.
func TestReachAsksNodesThroughAPIServer(t *testing.T) {
	c := startCluster(t)
	const nodes = 100
	s := startSimulated(t, c, nodes)
	kubeconfig := c.kubeconfigOf(c.address, "sre")
	ask := func(args ...string) (code int, out, errOut string) { return askFromElsewhere(t, kubeconfig, args...) }
	if code, _, errOut := ask("get", "policies"); code != 2 || !strings.Contains(errOut, "is forbidden") || !strings.Contains(errOut, "ClusterRole sluicectl") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("without the role: exit code %d, %q", code, errOut)
	}
	c.bindRole("sre")
	eventually(t, func() error {
		if code, _, errOut := ask("get", "status", "--node", "node-0"); code != 0 {
			return errors.New(errOut)
		}
		return nil
	})
	begin := time.Now()
	code, out, errOut := ask("get", "policies", "--no-headers")
	t.Logf("%d nodes answered in %s", nodes, time.Since(begin).Round(time.Millisecond))
	if n := strings.Count(out, "shop/web"); code != 0 || n != nodes {
		t.Fatalf("exit code %d, %d rows, want %d: %s", code, n, nodes, errOut)
	}
	if code, out, errOut := ask("get", "status", "--node", "node-7", "-o", "jsonpath={.node}"); code != 0 || out != "node-7" {
		t.Errorf("status of node-7: exit code %d, %q, %s", code, out, errOut)
	}

	delete(s.sockets, "agent-3") // an image of an earlier version
	code, out, errOut = ask("get", "policies", "--no-headers")
	if n := strings.Count(out, "shop/web"); code != 2 || n != nodes-1 || !strings.Contains(errOut, `1 node did not answer: node-3: the image of pod agent-3 has no "sluicectl dial-stdio"`) {
		t.Errorf("with one agent of an earlier version: exit code %d, %d rows, %q", code, n, errOut)
	}
}

// BenchmarkReach measures "sluicectl get policies" of so many nodes, from its start to its end.
func BenchmarkReach(b *testing.B) {
	c := startCluster(b)
	startSimulated(b, c, 100)
	kubeconfig := c.kubeconfigOf(c.address, "admin")
	for b.Loop() {
		if code, out, errOut := askFromElsewhere(b, kubeconfig, "get", "policies", "--no-headers"); code != 0 || strings.Count(out, "shop/web") != 100 {
			b.Fatalf("exit code %d: %s", code, errOut)
		}
	}
}
