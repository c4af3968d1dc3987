package embedding

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRendererInForeignModule copies the example of a renderer to a module of its own, which may
// import what is public only, and runs its tests there.
func TestRendererInForeignModule(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "docs", "examples", "renderer"))); err != nil {
		t.Fatal(err)
	}
	sluice, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// What Sluice requires is required here, too, so that nothing has to be looked up.
	const module = "github.com/sluice-net/sluice"
	text := strings.Replace(string(mod), "module "+module+"\n", "module example.test/device\n", 1) +
		"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + sluice + "\n"
	for name, content := range map[string]string{"go.mod": text, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-count=1", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test: %v\n%s", err, out)
	}
}
