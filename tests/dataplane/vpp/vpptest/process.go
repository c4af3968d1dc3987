package vpptest

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

	"github.com/sluice-net/sluice/internal/lib/scratch"
)

// Variable is the environment variable that names the vpp binary.
const Variable = "SLUICE_VPP_BIN"

// Patience bounds everything that is waited for.
const Patience = 60 * time.Second

// TB is what is needed of a test. What goes wrong with a VPP is fatal.
type TB interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Process is a VPP without devices, and a connection to it. One goroutine uses it at a
// time.
type Process struct {
	TB   TB
	Conn *core.Connection // while it runs

	binary  string
	dir     string
	plugins []string // in addition to that of ACLs
	config  string   // further text of the start-up file
	heap    string   // the size of the main heap
	by      func(*exec.Cmd) error
	cmd     *exec.Cmd
}

// started counts processes, whose shared memory needs names of its own.
var started atomic.Int32

// Launch starts the VPP that the environment names, with plugins in addition to that of ACLs; it
// ends with the test. A test is skipped where one of them is not built.
func Launch(tb testing.TB, plugins ...string) *Process {
	tb.Helper()
	return LaunchWith(tb, "", plugins...)
}

// LaunchWith is Launch with further text in the start-up file.
func LaunchWith(tb testing.TB, config string, plugins ...string) *Process {
	tb.Helper()
	v := &Process{TB: tb, binary: Binary(tb), dir: tb.TempDir(), plugins: plugins, config: config, heap: "512M"}
	tb.Cleanup(v.Stop)
	v.Start()
	loaded := v.CLI("show plugins")
	for _, p := range plugins {
		switch {
		case strings.Contains(loaded, p):
		case p == filepath.Base(os.Getenv(PluginVariable)):
			tb.Fatalf("VPP %s has not loaded %s: is it for this release?", v.Version(), os.Getenv(PluginVariable))
		default:
			tb.Skipf("%s is not beside the plugins of %s", p, v.binary)
		}
	}
	return v
}

// LaunchBy is LaunchWith where it matters who starts the process. It ends with the thread that did.
func LaunchBy(tb testing.TB, start func(*exec.Cmd) error, config string, plugins ...string) *Process {
	tb.Helper()
	v := &Process{TB: tb, binary: Binary(tb), dir: tb.TempDir(), plugins: plugins, config: config, heap: "512M", by: start}
	v.Start()
	tb.Cleanup(v.Stop) // before that thread ends
	return v
}

// LaunchLarge is LaunchWith with a main heap of 2 GB instead of 512 MB.
func LaunchLarge(tb testing.TB, config string, plugins ...string) *Process {
	tb.Helper()
	v := &Process{TB: tb, binary: Binary(tb), dir: ShortDir(tb), plugins: plugins, config: config, heap: "2G"}
	v.Start()
	tb.Cleanup(v.Stop)
	return v
}

// ShortDir is TempDir without the name of the test: paths of sockets have at most 107 bytes.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := scratch.New("vpp-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = dir.Remove() })
	return dir.Path
}

// Binary is the VPP that the environment names. A test is skipped where it names none.
func Binary(tb testing.TB) string {
	tb.Helper()
	binary := os.Getenv(Variable)
	if binary == "" {
		tb.Skip(Variable + " does not name a vpp binary")
	}
	return binary
}

// New starts a VPP that keeps its files in a folder, with further text in the start-up file, and
// plugins in addition to that of ACLs. The caller must Stop it.
func New(tb TB, binary, dir, config string, plugins ...string) *Process {
	tb.Helper()
	v := &Process{TB: tb, binary: binary, dir: dir, plugins: plugins, config: config, heap: "512M"}
	v.Start()
	return v
}

// Signal sends the process a signal.
func (v *Process) Signal(s os.Signal) error { return v.cmd.Process.Signal(s) }

// PluginVariable is the environment variable that names Sluice's plugin for VPP.
const PluginVariable = "SLUICE_VPP_PLUGIN"

// Plugin is the plugin that the environment names, and the text of a start-up file that finds it. A
// test is skipped where it names none.
func Plugin(tb testing.TB) (name, config string) {
	tb.Helper()
	path := os.Getenv(PluginVariable)
	if path == "" {
		tb.Skip(PluginVariable + " does not name a plugin")
	}
	return filepath.Base(path), fmt.Sprintf("plugins { add-path %s }\n", filepath.Dir(path))
}

// Socket is the path of its API socket.
func (v *Process) Socket() string { return filepath.Join(v.dir, "api.sock") }

// StatsSocket is the path of the socket of its statistics segment.
func (v *Process) StatsSocket() string { return filepath.Join(v.dir, "stats.sock") }

// Without syslog: VPP would call it in a handler of signals, and wait for itself.
const startup = `unix { nodaemon nosyslog runtime-dir %[1]s cli-listen %[1]s/cli.sock log %[1]s/vpp.log nocolor poll-sleep-usec 100 }
api-segment { prefix sluice-%[2]d-%[3]d gid root }
socksvr { socket-name %[1]s/api.sock }
statseg { socket-name %[1]s/stats.sock size 32M }
memory { main-heap-size %[5]s }
buffers { buffers-per-numa 8192 page-size default }
physmem { max-size 64m }
plugins { plugin default { disable } plugin acl_plugin.so { enable } %[4]s }
`

// Start starts the process, or starts it again after Stop, and returns when its socket
// answers.
func (v *Process) Start() {
	v.TB.Helper()
	path := filepath.Join(v.dir, "startup.conf")
	var plugins strings.Builder
	for _, p := range v.plugins {
		fmt.Fprintf(&plugins, " plugin %s { enable }", p)
	}
	config := fmt.Sprintf(startup, v.dir, os.Getpid(), started.Add(1), plugins.String(), v.heap) + v.config
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		v.TB.Fatal(err)
	}
	v.cmd = exec.Command(v.binary, "-c", path)
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no test that crashes leaves it behind
	start := (*exec.Cmd).Start
	if v.by != nil {
		start = v.by
	}
	if err := start(v.cmd); err != nil {
		v.TB.Fatal(err)
	}
	Eventually(v.TB, "vpp to answer", func() bool {
		c, err := core.Connect(socketclient.NewVppClient(v.Socket()))
		v.Conn = c
		return err == nil
	})
}

// Stop ends the process as an init system would.
func (v *Process) Stop() { v.end(syscall.SIGTERM) }

// Kill ends the process as a crash does: its socket stays.
func (v *Process) Kill() { v.end(syscall.SIGKILL) }

// end ends the process by a signal, even if it is stopped.
func (v *Process) end(by syscall.Signal) {
	if v.cmd != nil {
		_ = v.cmd.Process.Signal(syscall.SIGCONT)
	}
	if v.Conn != nil {
		v.Conn.Disconnect()
		v.Conn = nil
	}
	if v.cmd != nil {
		_ = v.cmd.Process.Signal(by)
		// VPP logs the signal, which waits for itself where that interrupted it in its heap.
		process, hangs := v.cmd.Process, atomic.Bool{}
		stuck := time.AfterFunc(10*time.Second, func() { hangs.Store(true); _ = process.Kill() })
		_ = v.cmd.Wait() // what a signal ended has an error
		stuck.Stop()
		if s, ok := v.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() != by && !hangs.Load() {
			v.TB.Errorf("vpp ended by itself: %s", s.Signal())
		}
		v.cmd = nil
	}
}

// Halt stops the process until Resume.
func (v *Process) Halt() { v.TB.Helper(); v.signal(syscall.SIGSTOP) }

// Resume continues the process.
func (v *Process) Resume() { v.TB.Helper(); v.signal(syscall.SIGCONT) }

func (v *Process) signal(s syscall.Signal) {
	v.TB.Helper()
	if err := v.cmd.Process.Signal(s); err != nil {
		v.TB.Fatal(err)
	}
}

// CLI runs a command of VPP's command line and returns what it prints.
func (v *Process) CLI(format string, args ...any) string {
	v.TB.Helper()
	ctx, cancel := Bounded(v.TB)
	defer cancel()
	command := fmt.Sprintf(format, args...)
	r, err := vlib.NewServiceClient(v.Conn).CliInband(ctx, &vlib.CliInband{Cmd: command})
	if err != nil {
		v.TB.Fatalf("%s: %v", command, err)
	}
	return r.Reply
}

// Do is CLI for commands that print only what is wrong.
func (v *Process) Do(format string, args ...any) {
	v.TB.Helper()
	if out := strings.TrimSpace(v.CLI(format, args...)); out != "" {
		v.TB.Fatalf("%s: %s", fmt.Sprintf(format, args...), out)
	}
}

// Version returns the version that VPP says it has.
func (v *Process) Version() string {
	v.TB.Helper()
	words := strings.Fields(v.CLI("show version"))
	if len(words) < 2 {
		v.TB.Fatalf("vpp has the version %q", words)
	}
	return words[1]
}

// Bounded returns a context that ends with Patience.
func Bounded(tb TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.Context(), Patience)
}

// Eventually waits for a condition that cannot be subscribed to.
func Eventually(tb TB, what string, ok func() bool) {
	tb.Helper()
	ctx, cancel := Bounded(tb)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("%s did not happen", what)
		}
	}
}
