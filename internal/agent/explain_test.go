package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// disguised are pods that are not what they seem, beside those of the demo.
const disguised = `
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: demo, labels: {app: friend}}
spec: {nodeName: node-1, hostNetwork: true}
status: {phase: Running, hostIP: 192.168.0.1, podIPs: [{ip: 192.168.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: demo, labels: {app: friend}}
spec: {nodeName: node-1}
status: {phase: Pending}
`

func TestExplainTakesPodsOfAnyKind(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Node.Name = "node-1" })
	a.apply(t, disguised)
	for q, want := range map[string]struct {
		allowed bool
		reason  string
		unasked string
	}{
		flowFrom("demo/host", "demo/server", "22"):    {true, "a pod and its own node always reach each other", ""},
		flowFrom("demo/waits", "demo/server", "http"): {true, "by ingress rule 0 of demo/server; no policy isolates egress of demo/waits", "nothing is installed for demo/waits before it has an address"},
		flowFrom("demo/server", "demo/server", "22"):  {true, "a pod always reaches itself", "the packet meets no table: it stays where it is"},
		flowFrom("192.168.0.2", "demo/server", "22"):  {false, "ingress of demo/server is isolated by demo/server, and the only rule does not match", ""},
	} {
		e := get[[]view.Explanation](t, a, "POST", "/v1/explain", q)[0]
		if r := e.Renderers[0]; e.Allowed != want.allowed || e.Oracle.Reason != want.reason || r.Unasked != want.unasked || !r.Agrees {
			t.Errorf("%s: %t, %q, %+v", q, e.Allowed, e.Oracle.Reason, r)
		}
	}
	for q, want := range map[string]string{
		flowFrom("demo/finished", "demo/server", "22"): "source: pod demo/finished has finished: it has no address any more, and policies do not see it",
		flowFrom("demo/nobody", "demo/server", "22"):   "source: pod demo/nobody is not known; namespace demo has finished, friend, host, server, stranger, waits",
		flowFrom("demo/friend", "demo/server", "sql"):  `has no tcp port that is named "sql", and it is not a number from 0 to 65535; there is http (80/tcp)`,
	} {
		if code, text := a.ask("POST", "/v1/explain", q); code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: status %d, %q", q, code, text)
		}
	}
	if code, text := a.ask("POST", "/v1/inject", flowFrom("demo/waits", "demo/server", "http")); code != 422 || !strings.Contains(text, "has no address yet") {
		t.Errorf("a packet of a pod without an address: status %d, %q", code, text)
	}
}

// TestExplainPutsLocalPodsOnOneNode puts the pods of two nodes on one. Tables and
// specification permit the same to the addresses of both nodes.
func TestExplainPutsLocalPodsOnOneNode(t *testing.T) {
	a := running(t, nil)
	for src, want := range map[string]bool{"192.168.0.1": true, "192.168.0.2": true, "192.168.0.3": false} {
		e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom(src, "demo/server", "22"))[0]
		if r, p := e.Renderers[0], e.Packets[0]; e.Allowed != want || !r.Agrees || p.Verdict != p.Expected {
			t.Errorf("from %s: allowed is %t, want %t; %+v, %+v", src, e.Allowed, want, r, p)
		}
	}
}

// TestExplainKeepsFurtherAddressesOfNodesApart asks about a pod of another node.
func TestExplainKeepsFurtherAddressesOfNodesApart(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Node.Name, c.Node.Addresses = "node-2", []string{"192.168.77.2"} })
	e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("192.168.77.2", "demo/server", "22"))[0]
	if r := e.Renderers[0]; e.Allowed || len(r.Decides) > 0 || e.Dst.Node != "node-1" {
		t.Errorf("allowed is %t, decided by %+v, on node %q", e.Allowed, r, e.Dst.Node)
	}
}

// TestExplainAnswersWithoutStore: from the state that the agent holds, and it says so.
func TestExplainAnswersWithoutStore(t *testing.T) {
	server := inprocess.Start(t, embedded.Config{})
	a := preparedOn(t, server, func(c *config.Config) { c.Node.Name = "node-1" })
	a.run(t)
	a.apply(t, demo)
	ask := func() view.Explanation {
		return get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("demo/friend", "demo/server", "80"))[0]
	}
	before := ask()
	if before.Stale != "" || !before.Renderers[0].Agrees {
		t.Fatalf("with a store that answers: stale %q, %+v", before.Stale, before.Renderers[0])
	}
	// What has no field for it says so in a header.
	remark := func(path string) string { return a.answer("GET", path, "").Header().Get(view.StaleHeader) }
	paths := []string{"/v1/pods/relations?namespace=demo&name=server", "/v1/policies/rules?namespace=demo&name=server", "/v1/matrix"}
	for _, path := range paths {
		if got := remark(path); got != "" {
			t.Errorf("with a store that answers, %s says %q", path, got)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at once", "after the agent has noticed"} {
		for _, path := range paths {
			if remark(path) == "" {
				t.Errorf("%s: %s does not say that changes may be missing", when, path)
			}
		}
		if after := ask(); after.Stale == "" || after.Allowed != before.Allowed || !after.Renderers[0].Agrees {
			t.Errorf("%s: stale %q, allowed %t, %+v", when, after.Stale, after.Allowed, after.Renderers[0])
		}
		a.eventually(t, "the agent follows no store", func() bool { return !a.watcher.Status().Following })
	}
}

// BenchmarkExplain asks an agent of one node over its API: in a cluster of 10 000 pods and 5 000
// policies, and in one ten times as large. What an answer costs hardly grows with the cluster.
func BenchmarkExplain(b *testing.B) {
	for _, pods := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("pods-%d", pods), func(b *testing.B) { benchmarkExplain(b, pods) })
	}
}

func benchmarkExplain(b *testing.B, pods int) {
	s := cluster.Random(1, cluster.Large(pods, pods/2))
	a := prepared(b, func(c *config.Config) { c.Node.Name = s.Pods[0].Spec.NodeName })
	var values []proto.Message
	for _, list := range [][]any{objects(s.Namespaces), objects(s.Pods), objects(s.Policies)} {
		for _, o := range list {
			if m, _ := convert.ToModel(o); m != nil {
				values = append(values, m)
			}
		}
	}
	if _, err := a.api.Answers.Reflector.Apply(context.Background(), values); err != nil {
		b.Fatal(err)
	}
	a.run(b)
	if err := a.cluster.Enforced(context.Background()); err != nil {
		b.Fatal(err)
	}
	var questions []string
	for _, f := range cluster.FlowSpace(s).Random(cluster.NewRand(1), 50) {
		questions = append(questions, fmt.Sprintf(`{"src":%q,"dst":%q,"port":"%d","protocol":%q}`, f.Src, f.Dst, f.DstPort, f.Protocol))
	}
	api, i, bytes := a.api.Owner().Mux(), 0, 0
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest("POST", "/v1/explain", strings.NewReader(questions[i%len(questions)])))
		var out []view.Explanation
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || !out[0].Renderers[0].Agrees {
			b.Fatalf("%s: %d, %s, %v", questions[i%len(questions)], w.Code, w.Body, err)
		}
		bytes, i = bytes+w.Body.Len(), i+1
	}
	b.ReportMetric(float64(bytes)/float64(i), "bytes/op")
	b.ReportMetric((cpu(b)-start).Seconds()*1000/float64(i), "cpu-ms/op")
}

// cpu returns the processor time of this process, which a busy machine does not
// lengthen.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func objects[T any](list []T) (out []any) {
	for _, o := range list {
		out = append(out, o)
	}
	return out
}
