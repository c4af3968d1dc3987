package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDevShowsEachEnforcedEdit(t *testing.T) {
	t.Parallel()
	shop := t.TempDir()
	if err := copyShop(shop); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, "dev", "--manifests", shop)
	a.Line(`^Rendered: 15 policies enforced`)
	a.Line(`^Following .*: edit a manifest and see what changes\. Ctrl-C ends\.$`)

	path := filepath.Join(shop, "60-data-policies.yaml")
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, text string) {
		t.Helper()
		now := strings.Replace(string(was), old, text, 1)
		if now == string(was) {
			t.Fatalf("%q is not in %s", old, path)
		}
		if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit("podSelector: {matchLabels: {app: catalog}}", "podSelector: {matchLabels: {app: web}}")
	a.Line(`^\d\d:\d\d:\d\d  revision 3 enforced in .*: 15 policies, .*; every verdict is that of the specification$`)
	a.Line(`^  data/search changed: 2 flows closed$`)
	a.Line(`^    closed  shop/catalog -> data/search search:9200/tcp$`)
	if out, code := a.ctl("inject", "shop/catalog-0", "data/search-0:9200"); code != 1 {
		t.Errorf("the packet is not dropped once the edit was shown: exit code %d\n%s", code, out)
	}

	edit("podSelector: {matchLabels: {app: catalog}}", "podSelector: {matchLabels: {app: catalog}}\n      ports: 1\n    - from: []")
	a.Line(`^problem  .*60-data-policies.yaml \(document 4\): NetworkPolicy data/search: spec\.ingress\[0\]\.ports`)
	if out, code := a.ctl("inject", "shop/catalog-0", "data/search-0:9200"); code != 1 {
		t.Errorf("a manifest with a mistake changed something: exit code %d\n%s", code, out)
	}

	edit("podSelector: {matchLabels: {app: postgres}}", "podSelector: {matchLabels: {app: postgres}} ")
	a.Line(`^all manifests are right again$`)
	a.Line(`^  data/search changed: 2 flows opened$`)
	a.Line(`^    opened  shop/catalog -> data/search search:9200/tcp$`)
	a.stop(syscall.SIGINT)
	if strings.Contains(a.Output(), "DIFFER") {
		t.Error("the dataplane and the specification differed")
	}
}

func TestDevStopsAtAnyMoment(t *testing.T) {
	t.Parallel()
	shop := t.TempDir()
	if err := copyShop(shop); err != nil {
		t.Fatal(err)
	}
	for i, moment := range []string{"it serves", "it has started", "it has reported", "it follows"} {
		t.Run("when "+moment, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, "dev", "--manifests", shop)
			a.serves()
			for _, line := range []string{`^Sluice,`, `^What is open`, `^Following`}[:i] {
				a.Line(line)
			}
			a.stop(syscall.SIGTERM)
		})
	}
}

func TestDevServesOnlyMetricsAndHealthOverTCP(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "dev", "--manifests", filepath.Join("..", "..", "..", "docs", "examples", "shop"), "--metrics-address", "127.0.0.1:0", "--log-level", "info")
	address := a.Line(`msg="metrics and health are served" address=(\S+)`)[1]
	a.ready()
	for path, want := range map[string]int{"/metrics": 200, "/livez": 200, "/readyz": 200, "/v1/pods": 404, "/debug/pprof/": 404} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d; %v", path, resp.StatusCode, want, err)
		}
	}
	info, err := os.Stat(a.socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%o", info.Mode().Perm()); got != "600" {
		t.Errorf("the socket has mode %s, want 600", got)
	}
}
