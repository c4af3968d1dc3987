package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// cleanUp runs sluice-agent cleanup where there are no interfaces but those of an empty network
// namespace. It needs root, since no other user can remove anything.
func cleanUp(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	done := make(chan error)
	go func() {
		if os.Getuid() == 0 {
			runtime.LockOSThread() // which ends with it
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				done <- err
				return
			}
		}
		none := filepath.Join(t.TempDir(), "none")
		code = Main(append([]string{"cleanup", "--all", "--cni-conf-dir", none, "--cni-bin-dir", none, "--state-file", none, "--endpoints-file", none, "--api-socket", none}, args...), &b, &b)
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	return code, b.String()
}

func TestCleanupRefusesFolderOutsideBPFFileSystem(t *testing.T) {
	none, other := filepath.Join(t.TempDir(), "none"), t.TempDir()
	for folder, want := range map[string]string{none: "--xdp-pins: there is no folder with pins: " + none, other: "is not in a bpf file system"} {
		code, out := cleanUp(t, "--xdp-pins", folder)
		if code != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %q, want one line with %q", code, out, want)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a folder that is not ours is gone: %v", err)
	}
}

// TestCleanupRemovesState and what is beside it, and leaves what is not Sluice's.
func TestCleanupRemovesState(t *testing.T) {
	root, pins := t.TempDir(), filepath.Join(t.TempDir(), "none")
	dir := filepath.Join(root, "sluice", "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	state, socket, foreign := filepath.Join(dir, "state"), filepath.Join(root, "sluice", "agent.sock"), filepath.Join(dir, "notes")
	endpoints := filepath.Join(dir, "endpoints")
	for _, f := range []string{state, state + ".interfaces", state + ".123", endpoints, socket, foreign} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, out := cleanUp(t, "--xdp-pins", pins, "--state-file", state, "--endpoints-file", endpoints, "--api-socket", socket)
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(left, []string{foreign}) || strings.Count(out, "removed ") != 5 {
		t.Errorf("left are %v (%v), and it said %s", left, err, out)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, "--xdp-pins", pins, "--state-file", state, "--api-socket", socket)
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("folders that are empty stay: %v, %v", left, err)
	}
}

// TestCleanupRefusesWhileAgentRuns removes nothing.
func TestCleanupRefusesWhileAgentRuns(t *testing.T) {
	dir := t.TempDir()
	socket, state := filepath.Join(dir, "s"), filepath.Join(dir, "state")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // no client connects
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := cleanUp(t, "--xdp-pins", filepath.Join(dir, "none"), "--state-file", state, "--api-socket", socket)
	if code != 1 || !strings.Contains(out, "--api-socket: an agent serves "+socket) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Stat(state); err != nil {
		t.Errorf("the state of an agent that runs is gone: %v", err)
	}
}

// TestAgentRefusesPinsOfOthers has check, run and cleanup meet the pins of another agent.
func TestAgentRefusesPinsOfOthers(t *testing.T) {
	if err := xdptest.Missing(); err != nil {
		t.Skip(err)
	}
	pins := filepath.Join(wires.BPFFS(t), "sluice")
	isFound := func(level preflight.Level, want string, args ...string) {
		t.Helper()
		dir := filepath.Dir(socketPath(t))
		cfg := configOf(t, append([]string{
			"--node", "node-2", "--renderers", "xdp", "--xdp-pins", pins, "--api-socket", filepath.Join(dir, "api"), "--state-file=",
		}, args...)...)
		report := preflight.Run(t.Context(), cfg.Preflight(modernHost))
		i := slices.IndexFunc(report, func(r preflight.Result) bool { return r.Name == "xdp pins" })
		if i < 0 || report[i].Level != level || !strings.Contains(report[i].Line(), want) {
			t.Errorf("check with %v: %+v, want %s %q", args, report, level, want)
		}
		if level != preflight.Error {
			return
		}
		if err := run(t.Context(), cfg, discard, logtail.New(io.Discard)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("run with %v: %v, want %q on one line", args, err, want)
		}
	}
	isFound(preflight.OK, "no other agent owns them")
	if _, err := os.Stat(pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a check made the folder: %v", err)
	}
	first, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 64, PinPath: pins, Owner: xdp.Owner{Node: "node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	owned := fmt.Sprintf("end it first: pid %d", os.Getpid())
	isFound(preflight.Error, owned)
	isFound(preflight.Error, owned, "--take-over")
	if code, out := cleanUp(t, "--xdp-pins", pins); code != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, owned) {
		t.Errorf("cleanup: exit code %d: %q, want one line with %q", code, out, owned)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	isFound(preflight.Error, `--node is "node-2": correct --node`)
	isFound(preflight.OK, "no other agent owns them", "--take-over")
	isFound(preflight.OK, "no other agent owns them", "--node", "node-1")
	if err := os.Chmod(pins, 0o750); err != nil {
		t.Fatal(err)
	}
	isFound(preflight.Error, "mode 0750: pins must be root's alone: chmod 0700 "+pins, "--node", "node-1")
	if code, out := cleanUp(t, "--xdp-pins", pins); code != 0 || !strings.HasPrefix(out, "removed ") {
		t.Errorf("cleanup: exit code %d: %q", code, out)
	}
}
