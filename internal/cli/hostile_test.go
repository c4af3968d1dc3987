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
	"github.com/sluice-net/sluice/internal/view"
)

// evil is a name that moves the cursor, and forges a line.
const evil = "evil\x1b[2J\u009b31m\r\nproblem: none\u202e"

// hostileAgent answers every list with names that a writer of etcd chose, and refuses the rest.
func hostileAgent(t *testing.T) string {
	t.Helper()
	pod := api.PodID{Namespace: evil, Name: evil}
	long := strings.Repeat("x", 1<<20)
	answers := map[string]any{
		"/v1/pods":     []view.Pod{{Pod: pod, Node: evil, State: evil}, {Pod: pod, Node: long}},
		"/v1/policies": []view.Policy{{Selector: evil + long, Pods: []api.PodID{pod}, Policy: api.PolicyID{Namespace: evil, Name: evil}, Pending: evil, Problems: []api.Problem{{Field: evil, Reason: evil}}}},
		"/v1/sets":     []view.Set{{Meaning: evil + long}},
		"/v1/status":   view.Status{Node: evil, Source: evil, Problems: []api.Problem{{Object: evil, Field: evil, Reason: evil + long}}, Renderers: []view.RendererStatus{{Name: "acl", Error: evil, Foreign: []string{evil}}}},
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

// TestOutputObeysNoNames: tables, lines, errors, JSON and YAML of a hostile state move no cursor,
// have no lines that they did not begin, and stay small.
func TestOutputObeysNoNames(t *testing.T) {
	socket := hostileAgent(t)
	for _, args := range [][]string{
		{"get", "pods"}, {"get", "policies"}, {"get", "sets"}, {"get", "status"}, {"get", "nodes"}, {"get", "pods", evil}, {"get", "rules"},
		{"explain", evil + "/a", "b/c:80/tcp"}, {"get", "policy", evil},
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
