package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// cleanUp runs sluice-agent cleanup where there are no interfaces but those of an empty network
// namespace, for root; nobody else can remove anything.
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
		code = Main(append([]string{"cleanup"}, args...), &b, &b)
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	return code, b.String()
}

func TestACleanUpOfAFolderThatIsNoneSaysSo(t *testing.T) {
	none, other := filepath.Join(t.TempDir(), "none"), t.TempDir()
	for folder, want := range map[string]string{none: "--xdp-pins: there is no folder with pins: " + none, other: "is in no bpf file system"} {
		code, out := cleanUp(t, "--xdp-pins", folder)
		if code != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %q, want one line with %q", code, out, want)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a folder that is not ours is gone: %v", err)
	}
}
