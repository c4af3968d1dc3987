package e2e

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
)

// pageEvents follows server-sent events of an agent's page on its socket, until the test ends.
func pageEvents(t *testing.T, socket, path string) <-chan string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/ui/api/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: status %d, %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				select {
				case out <- data:
				case <-t.Context().Done():
					return
				}
			}
		}
	}()
	return out
}
