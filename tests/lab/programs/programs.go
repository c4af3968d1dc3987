// Package programs builds the programs of the project once per test binary, and runs them as
// processes, for tests that know nothing of their inside.
//
// # Invariants
//
//   - A process ends with its test. Of one that failed everything that it wrote is shown.
//   - Nothing sleeps: what is waited for is polled, for Patience at most.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/lib/scratch"
)

// Patience is how long anything may take before a test gives up. It is only used up by failures.
const Patience = time.Minute

// bin is the directory of the programs.
var bin string

// Main builds the programs, or takes those in the directory that SLUICE_BIN names, and runs the
// tests of a package that is two folders below the root of the module. It returns the exit code.
func Main(m *testing.M) int {
	if bin = os.Getenv("SLUICE_BIN"); bin != "" {
		return m.Run()
	}
	dir, err := scratch.New("sluice-programs-")
	if err == nil {
		defer func() { _ = dir.Remove() }() // what is left is in the temporary directory
		bin = dir.Path
		err = build(bin)
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
	cmd := exec.Command("go", append(args, "github.com/sluice-net/sluice/cmd/...")...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// Path returns the path of a program.
func Path(name string) string { return filepath.Join(bin, name) }

// Run runs a program to its end, which must be a good one.
func Run(t testing.TB, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, Path(name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// Store writes the objects of a manifest into an etcd.
func Store(t testing.TB, etcd, manifest string) {
	t.Helper()
	Run(t, "sluicectl", "apply", "-f", Manifest(t, manifest), "--etcd-endpoints", etcd)
}

// Manifest writes a file, and returns its path.
func Manifest(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SocketDir returns a directory whose name is short: the path of a Unix socket has room for 107
// bytes.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := scratch.New("sl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Remove() }) // what is left is in the temporary directory
	return dir.Path
}

// Poll calls until there is no error, up to a time limit; the error describes what is still
// missing.
func Poll(most time.Duration, satisfied func() error) error {
	deadline := time.Now().Add(most)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		err := satisfied()
		if err == nil || time.Now().After(deadline) {
			tick.Stop()
			return err
		}
	}
}

// Eventually polls until it is satisfied, or ends the test.
func Eventually(t testing.TB, satisfied func() error) {
	t.Helper()
	if err := Poll(Patience, satisfied); err != nil {
		t.Fatal(err)
	}
}

// Ask gets a path from the debug API behind a socket.
func Ask(socket, path string) (int, []byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: Patience}).Get("http://agent" + path)
	if err != nil {
		return 0, nil, err
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, errors.Join(err, resp.Body.Close())
}
