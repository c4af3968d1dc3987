package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/renderer"
)

// evil is a name that moves the cursor, and forges a line.
const evil = "evil\x1b[2J\u009b31m\r\nproblem: none\u202e"

// hostileAgent answers every list with names that a writer of etcd chose, and refuses the rest.
func hostileAgent(t *testing.T) string {
	t.Helper()
	pod := api.PodID{Namespace: evil, Name: evil}
	long := strings.Repeat("x", 1<<20)
	answers := map[string]any{
		"/v1/pods":      []view.Pod{{Pod: pod, Node: evil, State: evil}, {Pod: pod, Node: long}},
		"/v1/policies":  []view.Policy{{Selector: evil + long, Pods: []api.PodID{pod}, Policy: api.PolicyID{Namespace: evil, Name: evil}, Pending: evil, Problems: []api.Problem{{Field: evil, Reason: evil}}}},
		"/v1/sets":      []view.Set{{Meaning: evil + long}},
		"/v1/status":    view.Status{Node: evil, Source: evil, Problems: []api.Problem{{Object: evil, Field: evil, Reason: evil + long}}, Renderers: []view.RendererStatus{{Name: "acl", Error: evil, Foreign: []string{evil}}}},
		"/v1/rules":     []view.Rule{{Renderer: evil, Table: evil, Meaning: evil + long, Pods: []api.PodID{pod}, Origins: []api.Origin{{Policy: api.PolicyID{Namespace: evil, Name: long}}}}},
		"/v1/audit":     []view.Audited{{Policy: api.PolicyID{Namespace: evil, Name: evil + long}, Renderer: evil, Workloads: []string{evil, long}, Pods: []api.PodID{pod}}},
		"/v1/tables":    []view.Table{{Renderer: evil, Table: evil, Pods: []api.PodID{pod}, Objects: []string{evil, long}}},
		"/v1/endpoints": []wire.Endpoint{{Interface: evil, Pod: pod.String(), State: evil, Reason: evil + long}},
		"/v1/pods/relations": view.PodRelations{
			Selecting: []api.PolicyID{{Namespace: evil, Name: evil}},
			Naming:    []oracle.RuleText{{Origin: api.Origin{Policy: api.PolicyID{Namespace: evil, Name: evil}}, Name: evil, Peers: []string{evil, long}, Ports: []string{evil}, Note: evil}},
		},
		"/v1/policies/rules": []oracle.RuleText{{Origin: api.Origin{Policy: api.PolicyID{Namespace: evil, Name: evil}}, Name: evil, Peers: []string{evil, long}, Ports: []string{evil}, Note: evil}},
		"/v1/matrix": view.Matrix{Matrix: matrix.Matrix{
			Groups: []matrix.Group{{Name: evil, Members: 2}, {Name: long}},
			Cells:  [][]matrix.Cell{{{}, {Ports: []matrix.PortReach{{Port: matrix.Port{Name: evil + long}, Reach: matrix.All}}}}, {{}, {}}},
		}},
		"/v1/explain": []view.Explanation{{
			Src: view.Party{Name: evil}, Dst: view.Party{Name: long},
			Oracle: reason.Verdict{Verdict: oracle.Verdict{Notes: []string{evil}, Reason: evil + long, Egress: oracle.DirectionVerdict{Reason: evil, Applies: true, Policies: []oracle.PolicyEval{{
				Policy: api.PolicyID{Namespace: evil, Name: long}, Subject: api.PodID{Namespace: "a", Name: "b"},
				Rules: []oracle.RuleEval{{Peers: []oracle.TermEval{{Term: evil, Why: evil + long}}, Ports: []oracle.TermEval{{Term: long, Why: evil}}}},
			}}}}, Changes: []suggest.Change{{Flips: true, Text: evil + long}}},
			Renderers: []view.Answer{{Renderer: evil, Decides: []api.Direction{api.Egress}, Decisions: []renderer.Decision{{Table: evil}}, Meanings: []string{evil + long}, Foreign: []string{evil}}},
		}},
		"/v1/decisions": []view.Decided{{Renderer: evil, Origin: api.Origin{Policy: api.PolicyID{Namespace: evil, Name: long}}, Packets: 1 << 63}, {Packets: 1<<64 - 1}},
		"/v1/traffic": view.Traffic{
			Pods:  []view.PodTraffic{{Pod: pod, Denied: 1<<64 - 1, Permitted: 1}, {}},
			Drops: []view.Drop{{Src: evil, Dst: long, Reason: evil, Origins: []api.Origin{{Policy: api.PolicyID{Namespace: evil, Name: evil}}}}, {Reason: long}},
		},
		"/v1/verdicts": view.PacketVerdict{Packets: 1<<64 - 1, Reason: evil + long, MatchedRule: view.MatchedRule{Table: evil}, Src: view.Party{Name: evil}},
		"/v1/check":    []view.Check{{Renderer: evil, Drift: []string{evil + long}, Foreign: []string{evil}}, {Renderer: evil, Error: evil}},
		"/v1/nodes":    []view.NodeEnforcement{{NodeStatus: view.NodeStatus{Node: evil, Version: evil, Time: time.Now()}, Enforced: view.EnforcedUnknown, Why: evil + long}},
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, "no pod "+evil, http.StatusUnprocessableEntity)
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends when it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

// TestOutputEscapesNames: tables, lines, errors, JSON and YAML of a hostile state move no cursor,
// have no lines that they did not begin, and stay small.
func TestOutputEscapesNames(t *testing.T) {
	socket := hostileAgent(t)
	for _, args := range [][]string{
		{"get", "pods"}, {"get", "policies"}, {"get", "sets"}, {"get", "status"}, {"get", "nodes"}, {"get", "pods", evil}, {"get", "rules"}, {"get", "audit"}, {"get", "audit", "-o", "wide"},
		{"explain", evil + "/a", "b/c:80/tcp"}, {"get", "policy", evil}, {"inject", evil + "/a", "b/c:80/tcp"},
		{"explain", "a/a", "b/c:80/tcp", "-v"}, {"explain", "a/a", "b/c:80/tcp"}, {"matrix"}, {"matrix", "--open"}, {"matrix", "--from", evil},
		{"top", "policies"}, {"top", "rules"}, {"top", "pods"}, {"top", "drops"}, {"top", "drops", "-o", "json"}, {"top", "drops", "-o", "wide"},
		{"watch", "verdicts", "--follow=false"}, {"watch", "verdicts", "--follow=false", "-o", "json"}, {"watch", "verdicts", "--follow=false", "-o", "yaml"},
		{"watch", "verdicts", evil, "--count", "1"}, {"watch", "verdicts", "--label", evil}, {"top", "drops", "--sort-by", evil}, {"top", "pods", "--from-peer", evil},
		{"check"}, {"suggest", "-n", evil}, {"suggest", "-n", "shop", "-f", evil}, {"suggest", "-n", evil, "--manifests", shopDir, "-f", "../../docs/examples/suggest/flows.jsonl"}, {"get", "tables"}, {"get", "endpoints"}, {"get", "rules", "--no-headers"}, {"get", "pods", "-l", "a!=b"}, {"get", "pods", "-l", evil}, {"get", evil},
		{"describe", "pod", evil + "/" + evil}, {"describe", "policy", evil + "/" + evil}, {"describe", "node", evil}, {"describe", "endpoint", evil + "/" + evil},
		{"get", "pods", "-o", "name"}, {"get", "pods", "-o", "jsonpath={[0].node}"}, {"get", "pods", "-o", "go-template={{(index . 0).node}}"},
		{"get", "pods", "-o", evil}, {"get", "pods", "-o", "jsonpath=" + evil}, {"get", "pods", "--sort-by", evil},
		{"get", "pods", "-o", "json"}, {"get", "status", "-o", "json"}, {"get", "policies", "-o", "yaml"}, {"get", "status", "-o", "wide"},
	} {
		var out, errOut bytes.Buffer
		Run(append([]string{"--socket", socket}, args...), strings.NewReader(""), &out, &errOut)
		text := out.String() + errOut.String()
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q writes %q", args, text[i:min(len(text), i+60)])
		}
		if !strings.Contains(strings.Join(args, " "), "-o") {
			if strings.Contains(text, "\nproblem: none") {
				t.Errorf("%q has a forged line: %.300q", args, text)
			}
			if len(text) > 64<<10 {
				t.Errorf("%q writes %d bytes", args, len(text))
			}
		}
		if !strings.Contains(text, "evil") {
			t.Errorf("%q shows nothing: %.300q", args, text)
		}
	}
}
