package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/debugapi"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// kinds are the agents that there can be, by what is configured.
var kinds = map[string]func(*config.Config){
	"acl":         func(c *config.Config) { c.Enforce.Renderers = []string{config.RendererACL} },
	"acl,session": func(c *config.Config) { c.Enforce.Renderers = []string{config.RendererACL, config.RendererSession} },
	"acl,xdp": func(c *config.Config) {
		c.Enforce.Renderers, c.Kernel.Mode = []string{config.RendererACL, config.RendererXDP}, string(xdp.ModeAuto)
	},
	"xdp": func(c *config.Config) {
		c.Enforce.Renderers, c.Kernel.Mode = []string{config.RendererXDP}, string(xdp.ModeAuto)
	},
	"ligato": func(c *config.Config) {
		c.Enforce.Renderers, c.Ligato.Target, c.Ligato.Interface, c.VPP.Uplinks = []string{config.RendererACL}, "ligato", "tap-{namespace}-{name}", []string{"uplink"}
	},
}

// questions are the bodies of requests, and what is added to paths, by patterns of routes.
var questions = map[string]string{
	"GET /metrics": "", "GET /livez": "", "GET /readyz": "", "GET /v1/status": "", "GET /v1/nodes": "", "GET /v1/pods": "", "GET /v1/policies": "",
	"GET /v1/pods/relations": "?namespace=demo&name=server", "GET /v1/policies/rules": "?namespace=demo&name=server",
	"GET /v1/sets": "", "GET /v1/tables": "", "GET /v1/rules": "", "GET /v1/audit": "", "GET /v1/limits": "", "GET /v1/matrix": "", "GET /v1/objects": "", "GET /v1/check": "", "GET /v1/settings": "", "GET /v1/log": "", "POST /v1/change": `{"put": []}`,
	"POST /v1/explain":  `{"src": "demo/friend", "dst": "demo/server", "port": "80", "protocol": "tcp"}`,
	"POST /v1/inject":   `{"src": "demo/friend", "dst": "demo/server", "port": "80", "protocol": "tcp"}`,
	"POST /v1/verdicts": `{}`, "POST /v1/traffic": `{}`, "GET /v1/decisions": "", "GET /v1/namespaces": "", "GET /debug/pprof/": "", "GET /debug/pprof/cmdline": "", "GET /debug/pprof/symbol": "",
	"GET /v1/endpoints": "", "GET /v1/endpoints/enforced": "?containerId=c1&ifName=eth0&timeout=5s", "DELETE /v1/endpoints": `{"containerId": "c1", "ifName": "eth0"}`,
	"POST /v1/endpoints":       `{"containerId": "c1", "ifName": "eth0", "namespace": "demo", "name": "server", "hostIf": "veth1", "hostIndex": 999999, "hostMAC": "02:00:00:00:00:01", "new": 1}`,
	"GET /v1/endpoints/vpp":    "?interface=memif0/1&namespace=demo&name=server&until=pending&timeout=10ms",
	"POST /v1/endpoints/gc":    `{"network": "pods", "attachments": []}`,
	"GET /debug/pprof/profile": "?seconds=1", "GET /debug/pprof/trace": "?seconds=1",
	"GET /ui/": "", "GET /ui/api/about": "", "GET /ui/api/graph": "?denied=true", "GET /ui/api/matrix": "", "GET /ui/api/pods": "", "GET /ui/api/pod": "?namespace=demo&name=server",
	"GET /ui/api/status": "", "GET /ui/api/verdicts": "", "POST /ui/api/explain": `{"src": "demo/friend", "dst": "demo/server", "port": "80", "protocol": "tcp"}`,
	"POST /ui/api/preview": `{"yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: demo, labels: {a: b}}}"}`,
}

// goesOn are the endpoints that answer for as long as a client listens, or wait for enforcement.
var goesOn = map[string]bool{"POST /v1/verdicts": true, "GET /ui/api/verdicts": true, "POST /v1/change": true, "GET /debug/pprof/profile": true, "GET /debug/pprof/trace": true}

// TestDebugAPIAnswersOnEveryKindOfAgent: every endpoint has an answer, or a refusal in words.
func TestDebugAPIAnswersOnEveryKindOfAgent(t *testing.T) {
	for kind, change := range kinds {
		t.Run(kind, func(t *testing.T) {
			if strings.Contains(kind, "xdp") && os.Geteuid() != 0 {
				t.Skip("only root may load programs into the kernel")
			}
			a := prepared(t, func(c *config.Config) {
				c.Node.Name = "node-1"
				change(c)
			})
			a.run(t)
			a.reflect(t, demo)
			a.eventually(t, "the state to be seen", func() bool {
				return a.node.Plugin.Status().Transactions > 0 && len(a.node.States()[0].Tables) > 0 || kind == "xdp"
			})
			api := a.api.Owner()
			for pattern := range api {
				question, known := questions[pattern]
				if !known {
					t.Errorf("%s is not asked: add a question", pattern)
					continue
				}
				a.answers(t, api, pattern, question)
			}
		})
	}
}

// answers asks an endpoint.
func (a *Agent) answers(t *testing.T, api debugapi.Routes, pattern, question string) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	body := question
	if strings.HasPrefix(question, "?") {
		path, body = path+question, ""
	}
	ctx := t.Context()
	if goesOn[pattern] {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
	}
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "localhost"
	api.Mux().ServeHTTP(rec, r)
	text := rec.Body.String()
	switch rec.Code {
	case http.StatusOK:
		if strings.HasPrefix(path, "/v1/") && path != "/v1/verdicts" && !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
			t.Errorf("%s answers %q, which is no JSON", pattern, text)
		}
	case http.StatusBadRequest, http.StatusNotFound: // by what package wire says
		if !strings.HasPrefix(path, "/v1/endpoints") || len(strings.TrimSpace(text)) < 10 {
			t.Errorf("%s refuses with status %d and %q", pattern, rec.Code, text)
		}
	case http.StatusUnprocessableEntity, http.StatusServiceUnavailable:
		if len(strings.TrimSpace(text)) < 10 || path != "/readyz" && rec.Code == http.StatusServiceUnavailable {
			t.Errorf("%s refuses with status %d and %q", pattern, rec.Code, text)
		}
	default:
		t.Errorf("%s: status %d: %s", pattern, rec.Code, text)
	}
}
