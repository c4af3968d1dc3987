package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bundled makes the agent write a bundle, and returns its path and the output.
func (p *process) bundled(code int) (path, said string) {
	p.t.Helper()
	path = filepath.Join(p.t.TempDir(), "bundle.tgz")
	said, got := p.ctl("bundle", path)
	if got != code {
		p.t.Fatalf("exit code %d, want %d: %s", got, code, said)
	}
	return path, said
}

// TestBundleReplaysStateOfAgent asks the agent and its bundle the same questions.
func TestBundleReplaysStateOfAgent(t *testing.T) {
	t.Parallel()
	shop := filepath.Join("..", "..", "..", "docs", "examples", "shop")
	a := startAgent(t, "dev", "--manifests", shop)
	a.Line(`^Following `)
	path, said := a.bundled(0)
	if !strings.Contains(said, path+" written") {
		t.Errorf("bundle says %q", said)
	}
	if out, code := a.ctl("bundle", path); code != 2 || !strings.Contains(out, "file exists") {
		t.Errorf("a second bundle in its place: exit code %d, %s", code, out)
	}
	change := filepath.Join("..", "..", "..", "docs", "examples", "preview", "cart.yaml")
	for _, question := range [][]string{
		{"explain", "shop/web-0", "data/postgres-0:5432/tcp", "-o", "json"},
		{"explain", "shop/web-0", "svc/shop/backend:http", "-o", "json"},
		{"diff", "-f", change},
		{"diff", "-f", change, "-o", "json", "--fail-on", "memory"},
	} {
		live, code := a.ctl(question...)
		replayed, again := a.ctl(append(question, "--from", path)...)
		if question[0] == "explain" { // each has its own dataplanes
			live, replayed, _ = strings.Cut(live+"\x00"+replayed, "\x00")
			live, _, _ = strings.Cut(live, `"renderers"`)
			replayed, _, _ = strings.Cut(replayed, `"renderers"`)
			live, replayed = withoutNode(live), withoutNode(replayed)
		}
		if live != replayed || code != again {
			t.Errorf("%v: exit codes %d and %d\nthe agent:\n%s\nthe bundle:\n%s", question, code, again, live, replayed)
		}
	}
	if out, code := a.ctl("matrix", "--from", path, "--open"); code != 0 || !strings.Contains(out, "every verdict is that of the specification") {
		t.Errorf("matrix of the bundle: exit code %d\n%s", code, out)
	}
	if out, code := a.ctl("explain", "--from", change, "a/b", "c/d:80"); code != 2 || !strings.Contains(out, "want agent, or the file of a bundle") {
		t.Errorf("a policy for a bundle: exit code %d\n%s", code, out)
	}
}

// withoutNode leaves out the lines that name the node of a pod: where all pods are local the agent
// names none.
func withoutNode(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.Contains(line, `"node"`) {
			out = append(out, strings.TrimSuffix(line, ","))
		}
	}
	return strings.Join(out, "\n")
}

// TestBundleOfFailedNodeIsReplayed ends the VPP of a node, and asks the bundle why.
func TestBundleOfFailedNodeIsReplayed(t *testing.T) {
	t.Parallel()
	v, _, a := startDemo(t)
	v.stop()
	eventually(t, func() error {
		code, body, err := ask(a.socket, "/readyz")
		if err == nil && code == 200 {
			return fmt.Errorf("the agent is ready: %s", body)
		}
		return err
	})
	path, _ := a.bundled(0)
	if out, code := a.ctl("explain", "--from", path, "demo/stranger", "demo/server:80"); code != 1 || !strings.Contains(out, "DENIED") {
		t.Errorf("explain: exit code %d\n%s", code, out)
	}
	files := unpacked(t, path)
	for name, want := range map[string]string{
		"readyz.txt": "renderer acl", "status.json": "not connected to the dataplane", "log.txt": "agent starts", "settings.json": `"node":"node-1"`, "metrics.txt": "sluice_",
		"goroutines.txt": "goroutine profile", "about.json": `"format": 1`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q: %.2000s", name, want, files[name])
		}
	}
}

// unpacked returns the files of a bundle by name, as people read them.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(h.Name)] = string(content)
	}
}
