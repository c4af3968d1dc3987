package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/plugins/statefile"
)

// contents returns the files of an archive by name, without their folder.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out, archive := map[string]string{}, tar.NewReader(packed)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(h.Name)] = string(text)
	}
}

// TestBundleOfAnAgentThatHasEnded collects what an agent left, and reads its state back.
func TestBundleOfAnAgentThatHasEnded(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	a := running(t, nil)
	root, known := model.Root(model.DefaultPrefix), map[string][]byte{}
	entries, revision, err := a.store.List(t.Context(), root)
	for _, e := range entries {
		known[e.Key] = e.Value
	}
	if err = errors.Join(err, statefile.Save(state, statefile.Header{Root: root, Revision: revision}, known)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "b.tgz")
	run := func(args ...string) (int, string) {
		var out, errOut bytes.Buffer
		code := Main(append([]string{"bundle", "--node", "node-1", "--state-file", state, "--etcd-endpoints", "127.0.0.1:1", "--etcd-user", "u", "--etcd-password", "swordfish",
			"--vpp-socket", filepath.Join(dir, "none"), "--endpoints-file", filepath.Join(dir, "endpoints\x1b[2J"), "--xdp-pins", filepath.Join(dir, "pins")}, args...), &out, &errOut)
		return code, errOut.String()
	}
	code, errOut := run(file)
	if code != 1 || !strings.Contains(errOut, "missing log.txt: the log of an agent that does not run is where") || !strings.Contains(errOut, file+" written\n") || strings.Contains(errOut, "\x1b") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	b, err := bundle.ReadFile(file)
	if err != nil || len(b.Objects.Objects) < 6 || b.Objects.Node != "node-1" || !strings.Contains(b.Objects.Stale, "as the agent saved it in "+state) {
		t.Errorf("%+v, %v", b.Objects, err)
	}
	for name, text := range contents(t, file) {
		if strings.Contains(text, "swordfish") {
			t.Errorf("%s has the password", name)
		}
		if name == "preflight.json" && !strings.Contains(text, "--vpp-socket: there is no socket") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if code, errOut := run(file); code != 1 || !strings.Contains(errOut, "file exists") {
		t.Errorf("a file that is there: exit code %d: %s", code, errOut)
	}
	if err := os.WriteFile(state, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, errOut := run(filepath.Join(dir, "c.tgz"), "--endpoints-file", "/dev/zero"); code != 1 || !strings.Contains(errOut, "missing objects.json: --state-file: ") || !strings.Contains(errOut, "/dev/zero is no file") {
		t.Errorf("a broken state: exit code %d: %s", code, errOut)
	}
}
