package xdp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// ownerOf are the options of an agent that only owns pins.
func ownerOf(pins, node string) xdp.KernelOptions {
	return xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 64, PinPath: pins, Owner: xdp.Owner{Node: node, Version: "v1.2.3"}}
}

// start starts an agent and returns what ends it.
func start(t *testing.T, o xdp.KernelOptions) (end func()) {
	t.Helper()
	k := newKernel(t, o)
	return func() {
		t.Helper()
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// isRefused checks that no agent starts, and that the one line with the reason has all of the
// texts.
func isRefused(t *testing.T, o xdp.KernelOptions, texts ...string) {
	t.Helper()
	k, err := xdp.NewKernel(o)
	if err == nil {
		t.Fatalf("an agent starts: %v", k.Close())
	}
	hasAll(t, err, texts...)
	if err := xdp.CheckOwner(o.PinPath, o.Owner.Node, o.TakeOver); err == nil {
		t.Error("the check finds nothing")
	} else {
		hasAll(t, err, texts...)
	}
}

func hasAll(t *testing.T, err error, texts ...string) {
	t.Helper()
	var refused *xdp.PinsError
	if !errors.As(err, &refused) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not a PinsError on one line", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q has no %q", err, text)
		}
	}
}

func TestNewKernelRefusesPinsOfOtherKernel(t *testing.T) {
	needKernel(t)
	pins := bpffs(t)
	end := start(t, ownerOf(pins, "node-1"))
	first := []string{"another process owns the pins in " + pins, `--node "node-1"`, `version "v1.2.3"`, fmt.Sprintf("end it first: pid %d", os.Getpid())}
	isRefused(t, ownerOf(pins, "node-1"), first...)
	isRefused(t, ownerOf(pins+"/", "node-1"), fmt.Sprintf("pid %d", os.Getpid()))
	before := names(t, pins)
	n, err := xdp.Cleanup(pins)
	if n != 0 || err == nil {
		t.Fatalf("a clean-up removes %d pins that have an owner: %v", n, err)
	}
	hasAll(t, err, first...)
	if after := names(t, pins); after != before {
		t.Errorf("pins were %s and are %s", before, after)
	}
	end()
	if err := xdp.CheckOwner(pins, "node-1", false); err != nil {
		t.Errorf("pins without an owner: %v", err)
	}
	start(t, ownerOf(pins, "node-1"))()
}

// names are those of all pins in a folder.
func names(t *testing.T, pins string) string {
	t.Helper()
	entries, err := os.ReadDir(pins)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(entries)
}

func TestNewKernelRefusesPinsOfOtherNode(t *testing.T) {
	needKernel(t)
	pins := bpffs(t)
	start(t, ownerOf(pins, "node-1"))()
	other := ownerOf(pins, "node-2")
	isRefused(t, other, "what is pinned in "+pins+" is another node's", `--node "node-1"`, `--node is "node-2"`, "--take-over")
	other.TakeOver = true
	if err := xdp.CheckOwner(pins, "node-2", true); err != nil {
		t.Errorf("the check of a take-over: %v", err)
	}
	start(t, other)()
	other.TakeOver = false
	start(t, other)() // they are its own
	isRefused(t, ownerOf(pins, "node-1"), `--node "node-2"`)
	other.Owner.Node, other.TakeOver = strings.Repeat("n", 2000), true
	if k, err := xdp.NewKernel(other); err == nil || !strings.Contains(err.Error(), "are too long") {
		t.Errorf("the name of a node that cannot be remembered: %v, %v", k, err)
	}
	start(t, ownerOf(pins, "node-2"))() // the failure changed nothing, and left no owner
}

// TestNewKernelOwnsPinsWithoutRecord has pins of a version that had no record, and records that
// cannot be read.
func TestNewKernelOwnsPinsWithoutRecord(t *testing.T) {
	needKernel(t)
	pins := bpffs(t)
	owner := filepath.Join(pins, "owner")
	start(t, ownerOf(pins, "node-1"))()
	for what, change := range map[string]func() error{
		"no record":      func() error { return os.Remove(owner) },
		"another map":    func() error { return os.Rename(filepath.Join(pins, "changes"), owner) },
		"something else": func() error { return errors.Join(os.Remove(owner), os.Symlink("/nowhere", owner)) },
	} {
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		node := strings.ReplaceAll(what, " ", "-")
		start(t, ownerOf(pins, node))()
		isRefused(t, ownerOf(pins, "node-1"), fmt.Sprintf("--node %q", node))
	}
}

func TestNewKernelRefusesPinsOfOtherUsers(t *testing.T) {
	needKernel(t)
	root := wires.BPFFS(t)
	pins := filepath.Join(root, "sluice")
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	link, loose := filepath.Join(root, "link"), filepath.Join(root, "dangling")
	if err := errors.Join(os.Symlink(pins, link), os.Symlink(filepath.Join(root, "none"), loose)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		user int
		mode os.FileMode
		want string
	}{
		{pins, 0, 0o755, fmt.Sprintf("folder %s belongs to user 0, mode 0755: pins must be root's alone: chmod 0700 %s", pins, pins)},
		{pins, 0, 0o710, "mode 0710"},
		{pins, 0, 0o702, "mode 0702"},
		{pins, 1000, 0o700, fmt.Sprintf("folder %s belongs to user 1000, mode 0700: pins must be root's alone: remove what others pinned there, then: chown 0:0 %s && chmod 0700 %s", pins, pins, pins)},
		{link, 0, 0o700, link + " is a symbolic link: name the folder that it leads to"},
		{link + "/", 0, 0o700, link + " is a symbolic link"},
	} {
		if err := errors.Join(os.Chown(pins, tc.user, 0), os.Chmod(pins, tc.mode)); err != nil {
			t.Fatal(err)
		}
		isRefused(t, ownerOf(tc.path, "node-1"), tc.want)
		if got := names(t, pins); got != "[]" {
			t.Errorf("%s, user %d, mode %#o: %s are pinned all the same", tc.path, tc.user, tc.mode, got)
		}
	}
	if _, err := xdp.Cleanup(link); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("the clean-up of a symbolic link: %v", err)
	}
	if k, err := xdp.NewKernel(ownerOf(loose, "node-1")); err == nil {
		t.Errorf("a link that leads nowhere is used: %v", k.Close())
	}
	if err := errors.Join(os.Chown(pins, 0, 0), os.Chmod(pins, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := xdp.Cleanup(pins); err != nil {
		t.Errorf("the clean-up of a folder that others may read: %v", err)
	}
	start(t, ownerOf(pins, "node-1"))()
	if info, err := os.Stat(pins); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a folder that was made is %v, %v", info.Mode(), err)
	}
}

const ownerProcess = "SLUICE_TEST_OWNER_OF"

// TestOwnerProcess is the agent that TestOwnerKilledIsReplaced kills.
func TestOwnerProcess(t *testing.T) {
	pins := os.Getenv(ownerProcess)
	if pins == "" {
		return // only that test starts it
	}
	k := newKernel(t, ownerOf(pins, "node-1"))
	fmt.Println("owns")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, if it does not kill it
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestOwnerKilledIsReplaced(t *testing.T) {
	needKernel(t)
	pins := bpffs(t)
	for range 3 {
		agent := exec.Command(os.Args[0], "-test.run", "^TestOwnerProcess$")
		agent.Env = append(os.Environ(), ownerProcess+"="+pins)
		in, errIn := agent.StdinPipe()
		out, errOut := agent.StdoutPipe()
		if err := errors.Join(errIn, errOut, agent.Start()); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "owns\n" {
			t.Fatalf("the agent says %q, %v", line, errors.Join(err, in.Close(), agent.Wait()))
		}
		isRefused(t, ownerOf(pins, "node-1"), `--node "node-1"`, fmt.Sprintf("end it first: pid %d", agent.Process.Pid))
		if _, err := xdp.Cleanup(pins); err == nil || !strings.Contains(err.Error(), fmt.Sprint("pid ", agent.Process.Pid)) {
			t.Errorf("a clean-up while the agent runs: %v", err)
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := agent.Wait(); err == nil {
			t.Error("the agent ended by itself")
		}
		start(t, ownerOf(pins, "node-1"))()
	}
}

// TestKernelNamesBeginWithOurs looks at all maps but the constants and variables of the
// program itself, whose names say what they are.
func TestKernelNamesBeginWithOurs(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a")
	w.apply(nil)
	names, err := w.kernel.KernelNames()
	if err != nil || len(names) < 15 {
		t.Errorf("there are only %v: %v", names, err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "sluice_") && name != ".rodata" && name != ".bss" { // which the loader makes
			t.Errorf("%s is the name of something of ours", name)
		}
	}
}
