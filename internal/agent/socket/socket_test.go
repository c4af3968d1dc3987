package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// Users and groups of whom the machine knows nothing.
const (
	stranger = 54321
	strange  = 54322
)

func TestSocketIsOnlyTakenFromEndedProcess(t *testing.T) {
	path := filepath.Join(programs.PublicFolder(t), "s")
	l, err := Listen(t.Context(), path, NoGroup)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), path, NoGroup); err == nil || !strings.Contains(err.Error(), "another process serves "+path) {
		t.Errorf("a socket in use: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Listen(ended, path, NoGroup); err == nil {
		t.Error("an agent that is ending takes a socket")
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Fatalf("the socket in use was taken away: %v", err)
	} else if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Listen(t.Context(), path, NoGroup); err != nil {
		t.Fatalf("a leftover is not replaced: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), file, NoGroup); err == nil || !strings.Contains(err.Error(), "exists and is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("the file was taken away")
	}
	if _, err := Listen(t.Context(), filepath.Join(file, "below", "it"), NoGroup); err == nil {
		t.Error("a directory that cannot be made is no error")
	}
}

// TestSocketOfOtherUserIsRefused: another process may have made the folder, or may replace the
// socket.
func TestSocketOfOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what belongs to others")
	}
	folder := programs.PublicFolder(t)
	for _, tc := range []struct {
		owner int
		mode  os.FileMode
		want  string
	}{
		{stranger, 0o755, "belongs to user 54321"},
		{0, 0o777, "mode 0777: others may write there"},
		{0, 0o777 | os.ModeSticky, "mode 0777: others may write there"},
	} {
		if err := errors.Join(os.Chown(folder, tc.owner, -1), os.Chmod(folder, tc.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(t.Context(), filepath.Join(folder, "s"), NoGroup); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), preflight.OursRemedy) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	if err := errors.Join(os.Chmod(folder, 0o755), os.WriteFile(filepath.Join(folder, "else"), nil, 0o600), os.Symlink("else", filepath.Join(folder, "s"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), filepath.Join(folder, "s"), NoGroup); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("a symbolic link: %v", err)
	}
	l, err := Listen(t.Context(), filepath.Join(folder, "new", "s"), strange)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Stat(filepath.Join(folder, "new")); err != nil || info.Mode().Perm() != 0o710 {
		t.Errorf("the folder that is made for a group has %v, %v", info.Mode(), err)
	}
}
