package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/view"
)

func TestBundleWithoutAgentWritesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tgz")
	code, out, errOut := sluicectl("/nowhere", "", "bundle", path)
	if code != ExitError || out != "" || !strings.HasPrefix(errOut, "sluicectl: there is nothing to collect: no agent listens on /nowhere") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file is left: %v", err)
	}
}

// TestBundleNamesMissingParts has an agent that answers one question, and hangs at another.
func TestBundleNamesMissingParts(t *testing.T) {
	socket := agent(t, map[string]http.HandlerFunc{
		"GET /v1/objects": says(view.Objects{}),
		"GET /v1/status":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	})
	path := filepath.Join(t.TempDir(), "b.tgz")
	code, _, errOut := sluicectl(socket, "", "bundle", path, "--request-timeout", "50ms")
	if code != ExitDenied || !strings.Contains(errOut, "missing status.json: the agent on "+socket+" did not answer within 50ms ") || !strings.Contains(errOut, "missing audit.json, check.json, endpoints.json, goroutines.txt, ") || !strings.Contains(errOut, path+" written\n") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if code, out, errOut := sluicectl("/nowhere", "", "matrix", "--from", path); code != ExitOK || !strings.Contains(out, "every verdict") {
		t.Errorf("matrix of an empty cluster: exit code %d, %q, %q", code, out, errOut)
	}
}

// TestBundleHasWhatWasDropped has a verdict that the agent has kept, and the list of audited
// traffic.
func TestBundleHasWhatWasDropped(t *testing.T) {
	socket := realShop(t)
	if code, _, errOut := sluicectl(socket, "", "inject", "shop/batch-0", "data/search-0:9200"); code != ExitDenied {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	code, out, errOut := sluicectl(socket, "", "bundle", "-")
	if code != ExitOK {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	packed, err := gzip.NewReader(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(h, err)
		}
		found[path.Base(h.Name)] = string(b)
	}
	if v := found["verdicts.jsonl"]; !strings.Contains(v, `"name":"data/search-0"`) || strings.TrimSpace(found["audit.json"]) != "[]" {
		t.Errorf("verdicts: %.300s\naudit: %s", v, found["audit.json"])
	}
}

func TestFromFlagRequiresBundle(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "b.tgz")
	if err := os.WriteFile(broken, []byte{0x1f, 0x8b, 8, 0}, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/nowhere.tgz": "want agent, or the file of a bundle",
		shopDir:        "want agent, or the file of a bundle",
		broken:         "bundle " + broken + ": it is not a tar archive compressed by gzip: unexpected EOF",
		"agent":        "no agent listens on /nowhere",
	} {
		if code, out, errOut := sluicectl("/nowhere", "", "explain", "shop/web-0", "shop/cart-0:http", "--from", path); code != ExitError || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %q, want %q", path, code, out+errOut, want)
		}
	}
	if code, _, errOut := sluicectl("/nowhere", "", "matrix", "--from", broken, "--manifests", shopDir); code != ExitError || !strings.Contains(errOut, "want one state, of an agent, a bundle or manifests") {
		t.Errorf("both: exit code %d, %q", code, errOut)
	}
}

// TestFromFlagRefusesDuplicateObjects has a bundle with a state that no store can hold.
func TestFromFlagRefusesDuplicateObjects(t *testing.T) {
	shop := view.ChangedObject{Kind: "namespace", Name: "shop", Value: []byte("\x0a\x04shop")}
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/objects": says(view.Objects{Objects: []view.ChangedObject{shop, shop}})})
	path := filepath.Join(t.TempDir(), "b.tgz")
	if code, _, errOut := sluicectl(socket, "", "bundle", path); code != ExitDenied {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	if code, out, errOut := sluicectl("/nowhere", "", "matrix", "--from", path); code != ExitError || out != "" || !strings.Contains(errOut, "shop is there twice") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}
