package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// page asks a replica.
func page(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}

// says waits until a page of a replica has a status and a text.
func says(t *testing.T, url string, code int, text string) {
	t.Helper()
	if err := programs.Poll(time.Minute, func() error {
		if got, body := page(t, url); got != code || !strings.Contains(body, text) {
			return fmt.Errorf("%s is %d %s; want %d %s", url, got, body, code, text)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// neutronReplica runs sluice-neutron in front of a Neutron that does not answer.
func neutronReplica(t *testing.T, etcd string) (at string, stop func()) {
	t.Helper()
	log, address := &programs.Buffer{}, programs.FreeAddress(t)
	cmd := NewNeutronCommand(log)
	cmd.SetArgs([]string{
		"--etcd-endpoints", etcd, "--neutron-url", "http://127.0.0.1:1", "--metrics-address", address, "--identity", "me",
		"--leader-ttl", "2s", "--api-socket", filepath.Join(t.TempDir(), "s"),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	return "http://" + address, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ends with %v", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	}
}

// manager listens as a service manager does.
func manager(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		b := make([]byte, 100)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

// TestReplicaStandsByLeadsAndEnds: probes are answered all the time, and the service manager
// learns of the process, not of its terms.
func TestReplicaStandsByLeadsAndEnds(t *testing.T) {
	hear := manager(t)
	server := inprocess.Start(t, embedded.Config{ClientURL: "http://127.0.0.1:0"})
	key := model.LeaderKey(model.DefaultPrefix, "neutron")
	other, err := server.Client().Lead(t.Context(), key, []byte("{}"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	at, stop := neutronReplica(t, fmt.Sprint(server.Endpoints()[0]))
	if got := hear(); got != "READY=1" {
		t.Errorf("it says %q first", got)
	}
	says(t, at+"/readyz", http.StatusOK, "ok: stands by")
	says(t, at+"/livez", http.StatusOK, "ok")
	says(t, at+"/metrics", http.StatusOK, "sluice_neutron_leader 0")
	if err := other.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	leads := func() {
		t.Helper()
		says(t, at+"/metrics", http.StatusOK, "sluice_neutron_leader 1")
		says(t, at+"/metrics", http.StatusOK, "sluice_dataplane_up 0")
		says(t, at+"/readyz", http.StatusServiceUnavailable, "")
		says(t, at+"/livez", http.StatusOK, "ok")
	}
	leads()
	stop()
	if got := hear(); got != "STOPPING=1" {
		t.Errorf("after a term it says %q, want that it stops", got)
	}
}

// TestReplicaWithoutStoreIsNotReady, so that a rollout stops that has wrong settings.
func TestReplicaWithoutStoreIsNotReady(t *testing.T) {
	at, stop := neutronReplica(t, "127.0.0.1:1")
	says(t, at+"/readyz", http.StatusServiceUnavailable, "etcd does not answer")
	says(t, at+"/livez", http.StatusOK, "ok")
	stop()
}
