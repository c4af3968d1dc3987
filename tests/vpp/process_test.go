package vpp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds everything that is waited for.
const patience = 60 * time.Second

// process is a VPP without devices, and a connection to it.
type process struct {
	tb      testing.TB
	binary  string
	dir     string
	plugins []string // beside that of ACLs
	cmd     *exec.Cmd
	conn    *core.Connection
}

// started counts processes, whose shared memory needs names of its own.
var started atomic.Int32

// startVPP starts the VPP that the environment names, with plugins beside that of ACLs;
// it ends with the test.
func startVPP(tb testing.TB, plugins ...string) *process {
	tb.Helper()
	binary := os.Getenv("SLUICE_VPP_BIN")
	if binary == "" {
		tb.Skip("SLUICE_VPP_BIN does not name a vpp binary")
	}
	v := &process{tb: tb, binary: binary, dir: tb.TempDir(), plugins: plugins}
	tb.Cleanup(v.stop)
	v.start()
	return v
}

func (v *process) socket() string { return filepath.Join(v.dir, "api.sock") }

const startup = `unix { nodaemon runtime-dir %[1]s cli-listen %[1]s/cli.sock log %[1]s/vpp.log nocolor poll-sleep-usec 100 }
api-segment { prefix sluice-%[2]d-%[3]d gid root }
socksvr { socket-name %[1]s/api.sock }
statseg { socket-name %[1]s/stats.sock size 32M }
memory { main-heap-size 512M }
buffers { buffers-per-numa 8192 page-size default }
physmem { max-size 64m }
plugins { plugin default { disable } plugin acl_plugin.so { enable } %[4]s }
`

// start returns when the socket answers.
func (v *process) start() {
	v.tb.Helper()
	path := filepath.Join(v.dir, "startup.conf")
	var plugins strings.Builder
	for _, p := range v.plugins {
		fmt.Fprintf(&plugins, " plugin %s { enable }", p)
	}
	config := fmt.Sprintf(startup, v.dir, os.Getpid(), started.Add(1), plugins.String())
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		v.tb.Fatal(err)
	}
	v.cmd = exec.Command(v.binary, "-c", path)
	if err := v.cmd.Start(); err != nil {
		v.tb.Fatal(err)
	}
	eventually(v.tb, "vpp to answer", func() bool {
		c, err := core.Connect(socketclient.NewVppClient(v.socket()))
		v.conn = c
		return err == nil
	})
}

// stop ends the process as an init system would.
func (v *process) stop() {
	if v.conn != nil {
		v.conn.Disconnect()
		v.conn = nil
	}
	if v.cmd != nil {
		_ = v.cmd.Process.Signal(syscall.SIGTERM)
		_ = v.cmd.Wait() // what a signal ended has an error
		v.cmd = nil
	}
}

// cli runs a command of VPP's command line and returns what it prints.
func (v *process) cli(format string, args ...any) string {
	v.tb.Helper()
	ctx, cancel := bounded(v.tb)
	defer cancel()
	command := fmt.Sprintf(format, args...)
	r, err := vlib.NewServiceClient(v.conn).CliInband(ctx, &vlib.CliInband{Cmd: command})
	if err != nil {
		v.tb.Fatalf("%s: %v", command, err)
	}
	return r.Reply
}

// do is cli for commands that print only what is wrong.
func (v *process) do(format string, args ...any) {
	v.tb.Helper()
	if out := strings.TrimSpace(v.cli(format, args...)); out != "" {
		v.tb.Fatalf("%s: %s", fmt.Sprintf(format, args...), out)
	}
}

// version returns the version that VPP says it has.
func (v *process) version() string {
	v.tb.Helper()
	words := strings.Fields(v.cli("show version"))
	if len(words) < 2 {
		v.tb.Fatalf("vpp has the version %q", words)
	}
	return words[1]
}

// bounded returns a context that ends with patience.
func bounded(tb testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.Context(), patience)
}

// eventually waits for a condition that cannot be subscribed to.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	ctx, cancel := bounded(tb)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("waited in vain for %s", what)
		}
	}
}
