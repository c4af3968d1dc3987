package scratch_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/internal/lib/scratch"
)

// killed is set for the process that makes a folder and does not remove it.
const killed = "SLUICE_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if os.Getenv(killed) == "" {
		os.Exit(m.Run())
	}
	f, err := scratch.New("folder-")
	if err == nil {
		err = os.MkdirAll(filepath.Join(f.Path, "deep", "down"), 0o700)
	}
	fmt.Println(f.Path, err)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
}

func newFolder(t *testing.T) *scratch.Folder {
	t.Helper()
	f, err := scratch.New("folder-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestNewRemovesDirectoriesOfKilledProcesses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killed+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var left string
	if _, err := fmt.Fscan(bufio.NewReader(out), &left); err != nil {
		t.Fatal(err)
	}
	mine := newFolder(t)
	if found, err := os.ReadDir(mine.Path); err != nil || len(found) > 0 {
		t.Errorf("a new folder has %v (%v)", found, err)
	}
	if !there(left) || !there(mine.Path) {
		t.Error("the folder of a process that lives is gone")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if !there(left) {
		t.Error("a killed process has removed its folder")
	}
	newFolder(t)
	if there(left) || !there(mine.Path) {
		t.Errorf("of the killed process: %t, of this one: %t", there(left), there(mine.Path))
	}
}

// TestNewLeavesDirectoriesOfOthers has folders, files and links that only look like ours.
func TestNewLeavesDirectoriesOfOthers(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", dir)
	if err := os.WriteFile(filepath.Join(outside, ".lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, "folder-"+name) }
	for _, err := range []error{
		os.Mkdir(at("without-lock"), 0o700), os.WriteFile(at("file"), nil, 0o600), os.Symlink(outside, at("link")),
		os.Mkdir(at("linked-lock"), 0o700), os.Symlink(filepath.Join(outside, ".lock"), filepath.Join(at("linked-lock"), ".lock")),
		os.Mkdir(filepath.Join(dir, "other-1"), 0o700), os.WriteFile(filepath.Join(dir, "other-1", ".lock"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	newFolder(t)
	for _, path := range []string{at("without-lock"), at("file"), at("link"), at("linked-lock"), filepath.Join(dir, "other-1"), filepath.Join(outside, ".lock")} {
		if !there(path) {
			t.Errorf("%s is gone", path)
		}
	}
}

// TestNewDoesNotWaitForPipe has a lock that is a pipe without a writer: to open it would block.
func TestNewDoesNotWaitForPipe(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	folder := filepath.Join(dir, "folder-pipe")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, ".lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	newFolder(t)
}

func TestNewFailsWithoutDirectory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent"))
	if f, err := scratch.New("folder-"); err == nil {
		t.Errorf("made %s", f.Path)
	}
}
