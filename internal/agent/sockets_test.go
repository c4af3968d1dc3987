package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// Users and groups of whom the machine knows nothing.
const (
	stranger = 54321
	strange  = 54322
)

// asUser asks over a socket as another user, in further groups, and returns the status and the
// answer.
func asUser(t *testing.T, socket string, uid, gid int, groups []uint32, method, path string) (int, string) {
	t.Helper()
	type result struct {
		status int
		text   string
		err    error
	}
	done := make(chan result)
	ask := func() {
		status, text, err := askAs(socket, uid, gid, groups, method, path)
		done <- result{status, text, err}
	}
	go func() { // on a thread that ends with its rights
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			ask()
			return
		}
		// The first thread does not end, and what /proc says of the process is about it.
		other := make(chan struct{})
		go func() {
			defer close(other)
			runtime.LockOSThread()
			ask()
		}()
		<-other
		runtime.UnlockOSThread()
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.status, r.text
}

func askAs(socket string, uid, gid int, groups []uint32, method, path string) (int, string, error) {
	var first *uint32
	if len(groups) > 0 {
		first = &groups[0]
	}
	if err := setGroups(len(groups), first); err != nil {
		return 0, "", err
	}
	keep := ^uintptr(0) // the saved user stays root
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(gid), keep); errno != 0 {
		return 0, "", errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return 0, "", errno
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		return 0, "", err
	}
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", method, path); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), errors.Join(err, answer.Body.Close(), c.Close())
}

// TestSocketAnswersOnlyItsUsers: the kernel reports the user, whatever the mode of the socket.
func TestSocketAnswersOnlyItsUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	a := running(t, func(c *config.Config) { c.Listen.APIGroup = fmt.Sprint(strange) })
	socket := a.cfg.Listen.APISocket
	a.eventually(t, "a socket", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Perm() == 0o660
	})
	for path, mode := range map[string]os.FileMode{filepath.Dir(socket): 0o755, socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := os.Open(filepath.Dir(socket)) // folders above may be private
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	at := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(socket))
	for _, tc := range []struct {
		name     string
		uid, gid int
		groups   []uint32
		request  string
		status   int
		text     string
	}{
		{"root", 0, 0, nil, "POST /v1/change", 200, ""},
		{"a stranger", stranger, stranger, []uint32{100, 101}, "GET /v1/status", 403, "user 54321 may not use this socket: it is for root and user 0"},
		{"a stranger", stranger, stranger, nil, "GET /metrics", 403, "user 54321 may not use this socket"},
		{"a member", stranger, strange, nil, "GET /v1/status", 200, "{"},
		{"a member", stranger, stranger, []uint32{100, strange}, "GET /v1/pods", 200, "["},
		{"a member", stranger, strange, nil, "POST /v1/change", 403, "user 54321 may only ask, as a member of --api-group"},
		{"a member", stranger, strange, nil, "POST /v1/endpoints", 403, "may only ask"},
		{"a member", stranger, strange, nil, "DELETE /v1/endpoints", 403, "may only ask"},
		{"a member", stranger, strange, nil, "GET /debug/pprof/heap", 403, "may only ask"},
		{"a member", stranger, strange, nil, "GET /nothing", 404, "not found"},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		status, text := asUser(t, at, tc.uid, tc.gid, tc.groups, method, path)
		if status != tc.status || !strings.Contains(text, tc.text) {
			t.Errorf("%s, %s: %d %q, want %d %q", tc.name, tc.request, status, text, tc.status, tc.text)
		}
	}
}

// TestStatePathRefusesFilesOfOtherUsers: the agent starts without a file that others may have
// written.
func TestStatePathRefusesFilesOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what belongs to others")
	}
	folder := programs.PublicFolder(t)
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	c := config.Config{Store: config.Store{StateFile: filepath.Join(folder, "state")}, Endpoints: config.Endpoints{File: filepath.Join(folder, "endpoints")}, Dev: config.Dev{EtcdDir: filepath.Join(folder, "etcd")}}
	if err := dev(t.Context(), c, nil, discard, logtail.New(io.Discard), io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--etcd-dir: folder "+folder) {
		t.Errorf("the embedded etcd starts there: %v", err)
	}
	c.Enforce.Renderers = []string{config.RendererXDP}
	report := preflight.Run(t.Context(), c.Preflight(modernHost))
	detail := func(name string) string {
		return report[slices.IndexFunc(report, func(r preflight.Result) bool { return r.Name == name })].Detail
	}
	for what, line := range map[string]string{
		"--state-file":     detail(config.StateFileCheck),
		"--endpoints-file": detail(config.EndpointsFileCheck),
	} {
		if !strings.HasPrefix(line, what+": folder "+folder) || !strings.HasSuffix(line, "others may write there: it is not used") {
			t.Errorf("%s: %q", what, line)
		}
	}
}

// setGroups gives the groups to this thread alone.
func setGroups(n int, first *uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(first)), 0); errno != 0 {
		return errno
	}
	return nil
}

// TestSocketComesBackWhenItIsRemoved: what cleans /run must not leave the CNI plugin and sluicectl
// without an agent.
func TestSocketComesBackWhenItIsRemoved(t *testing.T) {
	a := running(t, nil)
	path := a.cfg.Listen.APISocket
	answers := func() bool {
		c, err := net.Dial("unix", path)
		return err == nil && c.Close() == nil
	}
	a.eventually(t, "a socket", answers)
	for what, path := range map[string]string{"the socket": path, "its folder": filepath.Dir(path)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		a.eventually(t, "a socket again after "+what+" was removed", answers)
	}
	if status, text := a.ask("GET", "/livez", ""); status != http.StatusOK {
		t.Errorf("livez: %d, %s", status, text)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "livez that fails while a file is in the way", func() bool {
		status, text := a.ask("GET", "/livez", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, path+" exists and is not a socket")
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "livez that works again", func() bool {
		status, _ := a.ask("GET", "/livez", "")
		return status == http.StatusOK && answers()
	})
}
