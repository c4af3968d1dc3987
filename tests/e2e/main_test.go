package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/etcd"
)

// bin is the directory of the programs.
var bin string

// patience is how long anything may take before a test gives up. It is only used up
// by failures.
const patience = time.Minute

func TestMain(m *testing.M) {
	etcd.Main()
	if text := os.Getenv(agentsEnv); text != "" {
		beAgents(text)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if bin = os.Getenv("SLUICE_BIN"); bin != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "sluice-e2e-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // what is left is in the temporary directory
		bin = dir
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	return m.Run()
}

// build uses the flags of "go test", so that all packages are in the cache already.
func build(dir string) error {
	args := []string{"build", "-ldflags", "-s -w", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/...")...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// program returns the path of a program.
func program(name string) string { return filepath.Join(bin, name) }

// socketDir returns a directory whose name is short: the path of a Unix socket has
// room for 107 bytes.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl") //nolint:usetesting // the path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is in the temporary directory
	return dir
}

// copyShop copies the shop example.
func copyShop(to string) error {
	return os.CopyFS(to, os.DirFS(filepath.Join("..", "..", "docs", "examples", "shop")))
}
