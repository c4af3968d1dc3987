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
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
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

// TestSocketAnswersOnlyItsUsers: whatever the mode of the socket is, the kernel says who asks.
func TestSocketAnswersOnlyItsUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	a := running(t, func(c *Config) { c.APIGroup = fmt.Sprint(strange) })
	socket := a.cfg.APISocket
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

// publicFolder returns a folder that everybody can get to: what is in a private one is safe whatever
// its mode is.
func publicFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "sl") //nolint:usetesting // the folders of tests are private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // what is left is in the temporary directory
	return folder
}

// TestSocketOfSquattersIsRefused: somebody else may have made the folder, or may replace the socket.
func TestSocketOfSquattersIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what belongs to others")
	}
	folder := publicFolder(t)
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
		if _, err := listenUnix(t.Context(), filepath.Join(folder, "s"), noGroup); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), placeRemedy) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	if err := errors.Join(os.Chmod(folder, 0o755), os.WriteFile(filepath.Join(folder, "else"), nil, 0o600), os.Symlink("else", filepath.Join(folder, "s"))); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), filepath.Join(folder, "s"), noGroup); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("a symbolic link: %v", err)
	}
	l, err := listenUnix(t.Context(), filepath.Join(folder, "new", "s"), strange)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Stat(filepath.Join(folder, "new")); err != nil || info.Mode().Perm() != 0o710 {
		t.Errorf("the folder that is made for a group has %v, %v", info.Mode(), err)
	}
}

// TestSettingsNameAGroup: by its name or number.
func TestSettingsNameAGroup(t *testing.T) {
	for text, want := range map[string]int{"": noGroup, "0": 0, "root": 0, "54322": strange} {
		if got, err := (Config{APIGroup: text}).apiGroup(); got != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"no such group", "-1", "4294967295"} {
		if _, err := (Config{APIGroup: text}).apiGroup(); err == nil || !strings.Contains(err.Error(), "--api-group") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestStateOfOthersIsNotBelieved: the agent starts without a file that others may have written.
func TestStateOfOthersIsNotBelieved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what belongs to others")
	}
	folder := publicFolder(t)
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	c := Config{StateFile: filepath.Join(folder, "state"), EndpointsFile: filepath.Join(folder, "endpoints"), EtcdDir: filepath.Join(folder, "etcd")}
	if err := dev(t.Context(), c, discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--etcd-dir: folder "+folder) {
		t.Errorf("the embedded etcd starts there: %v", err)
	}
	for what, line := range map[string]string{
		"--state-file":     c.checkStateFile(t.Context()).Detail,
		"--endpoints-file": c.checkEndpointsFile(t.Context()).Detail,
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
