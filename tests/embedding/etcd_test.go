package embedding

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/docs/examples/embedding"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

const demo = `apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: demo, labels: {app: server}}
spec: {nodeName: node-1}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, namespace: demo, labels: {app: friend}}
spec: {nodeName: node-1}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: demo, labels: {app: stranger}}
spec: {nodeName: node-1}
status: {phase: Running, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
    - from: [{podSelector: {matchLabels: {app: friend}}}]
      ports: [{port: 80}]
`

// TestAgentFollowsEtcd of a real server, to which sluicectl writes.
func TestAgentFollowsEtcd(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(t.Context(), embedded.Config{ClientURL: "http://127.0.0.1:0", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	v := startVPP(t)
	a, err := embedding.NewAgent(node, v.socket, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Follow(kvstore.Config{Endpoints: server.Endpoints()}, quiet); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "demo.yaml")
	if err := os.WriteFile(file, []byte(demo), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := cli.Run([]string{"apply", "-f", file, "--etcd-endpoints", server.Endpoints()[0]}, nil, &out, &out); code != 0 {
		t.Fatalf("sluicectl apply: exit code %d: %s", code, &out)
	}
	for end := time.Now().Add(time.Minute); v.permits("stranger", "server", 80); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("policy is not enforced")
		}
	}
	v.check(t, "friend", "stranger")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	v.check(t, "friend", "stranger") // without the agent
}
