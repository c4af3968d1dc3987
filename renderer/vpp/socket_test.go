package vpp_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// listen listens on a socket until the test ends.
func listen(t *testing.T, network, path string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // it may be closed already
	return l
}

func TestCheckSocketReportsReason(t *testing.T) {
	dir := programs.SocketDir(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	listen(t, vpp.APINetwork, path("api"))
	listen(t, vpp.StatsNetwork, path("stats"))
	dead := listen(t, vpp.APINetwork, path("dead")).(*net.UnixListener)
	dead.SetUnlinkOnClose(false)
	if err := errors.Join(dead.Close(), os.WriteFile(path("file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		network, name, want string
		is                  error
	}{
		{vpp.APINetwork, "api", "", nil},
		{vpp.StatsNetwork, "stats", "", nil},
		{vpp.APINetwork, "none", "there is no socket " + path("none") + ": VPP is not running", fs.ErrNotExist},
		{vpp.APINetwork, "file", path("file") + " is not a socket", nil},
		{vpp.APINetwork, "dead", "nothing listens on socket " + path("dead"), syscall.ECONNREFUSED},
		{vpp.APINetwork, "stats", "socket " + path("stats") + " has the wrong type", syscall.EPROTOTYPE},
	} {
		err := vpp.CheckSocket(t.Context(), tc.network, path(tc.name))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestConnectNamesSocketThatDoesNotAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := vpp.Dial(vpp.Options{Socket: path, Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	_, _, err = l.Connect(t.Context())
	if want := "not connected to the vswitch: there is no socket " + path; !errors.Is(err, vpp.ErrNotConnected) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
