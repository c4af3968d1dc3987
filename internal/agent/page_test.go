package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/view"
)

// TestPageIsOnTheSocket, where a browser's page reaches nothing else, and on TCP with a token when
// that is asked for.
func TestPageIsOnTheSocket(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("s3cret-", 5)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a := running(t, func(c *config.Config) { c.Listen.UIAddress, c.Listen.UITokenFile = address, token })
	for network, address := range map[string]string{"unix": a.cfg.Listen.APISocket, "tcp": address} {
		a.eventually(t, "the agent to listen at "+address, func() bool {
			c, err := net.Dial(network, address)
			return err == nil && c.Close() == nil
		})
	}
	local := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", a.cfg.Listen.APISocket)
	}}}
	remote := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tc := range []struct {
		client *http.Client
		method string
		url    string
		header [2]string
		want   int
	}{
		{&local, "GET", "http://localhost/ui/", [2]string{}, 200},
		{&local, "GET", "http://localhost:8080/ui/api/graph", [2]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{&local, "GET", "http://localhost/ui/api/graph", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{&local, "GET", "http://evil.example/ui/api/graph", [2]string{}, 421},
		{&local, "GET", "http://localhost/v1/pods", [2]string{}, 200},
		{&local, "GET", "http://localhost/v1/pods", [2]string{"Sec-Fetch-Site", "none"}, 403},
		{&local, "GET", "http://localhost/v1/pods", [2]string{"Origin", "http://localhost"}, 403},
		{&local, "POST", "http://localhost/v1/change", [2]string{"Origin", "http://localhost"}, 403},
		{&local, "DELETE", "http://localhost/v1/endpoints", [2]string{"Sec-Fetch-Mode", "cors"}, 403},
		{&remote, "GET", "http://" + address + "/ui/", [2]string{}, 200},
		{&remote, "GET", "http://" + address + "/ui/api/pods", [2]string{}, 401},
		{&remote, "GET", "http://" + address + "/ui/api/pods", [2]string{"Authorization", "Bearer " + strings.Repeat("s3cret-", 5)}, 200},
		{&remote, "GET", "http://" + address + "/ui/api/pods", [2]string{"Authorization", "Bearer wrong"}, 401},
		{&remote, "GET", "http://" + address + "/v1/pods", [2]string{"Authorization", "Bearer " + strings.Repeat("s3cret-", 5)}, 404},
		{&remote, "POST", "http://" + address + "/v1/change", [2]string{}, 404},
		{&remote, "GET", "http://" + address + "/metrics", [2]string{}, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, tc.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.header[0] != "" {
			r.Header.Set(tc.header[0], tc.header[1])
		}
		resp, err := tc.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != tc.want {
			t.Errorf("%s %s %v: status %d, want %d: %.200s, %v", tc.method, tc.url, tc.header, resp.StatusCode, tc.want, body, err)
		}
	}
}

// TestPageShowsWhatTheAgentKnows: states, installed rules and nodes, beside what the store has.
func TestPageShowsWhatTheAgentKnows(t *testing.T) {
	a := running(t, nil)
	pod := get[struct {
		State     string
		Installed []view.Rule
		Missing   string
	}](t, a, "GET", "http://localhost/ui/api/pod?namespace=demo&name=server", "")
	if pod.State != "enforced" || len(pod.Installed) == 0 || pod.Missing != "" {
		t.Errorf("the pod is %+v", pod)
	}
	if s := get[struct{ Status view.Status }](t, a, "GET", "http://localhost/ui/api/status", ""); s.Status.Pods != 4 || len(s.Status.Renderers) != 1 {
		t.Errorf("the status is %+v", s)
	}
	if e := get[struct{ Allowed bool }](t, a, "POST", "http://localhost/ui/api/explain", `{"src":"demo/friend","dst":"demo/server","port":"http","protocol":"tcp"}`); !e.Allowed {
		t.Error("a flow that is allowed is denied")
	}
}

// TestPageNeedsAGoodToken on TCP: the agent does not start otherwise.
func TestPageNeedsAGoodToken(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"": "needs --ui-token-file", short: "can be guessed", "/nowhere/token": "no such file"} {
		a := prepared(t, func(c *config.Config) { c.Listen.UIAddress, c.Listen.UITokenFile = "127.0.0.1:0", file })
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}
