package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// process is a program that runs.
type process struct {
	*programs.Process
	t      testing.TB
	socket string // of its debug API
}

// startAgent starts sluice-agent with a debug API of its own; it is killed with the
// test if it still runs then.
func startAgent(t testing.TB, args ...string) *process {
	t.Helper()
	socket := filepath.Join(socketDir(t), "agent.sock")
	p := startProgram(t, "sluice-agent", append(args, "--api-socket", socket)...)
	p.socket = socket
	return p
}

// startProgram starts a program, which is killed with the test if it still runs then.
func startProgram(t testing.TB, name string, args ...string) *process {
	t.Helper()
	return startProgramBy(t, (*exec.Cmd).Start, name, args...)
}

// startProgramBy is startProgram with a start function, for example one that changes the user or
// the namespace.
func startProgramBy(t testing.TB, start func(*exec.Cmd) error, name string, args ...string) *process {
	t.Helper()
	return &process{Process: programs.Start(t, start, name, args...), t: t}
}

// halt stops the process, resume continues it.
func (p *process) halt()   { p.t.Helper(); p.Signal(syscall.SIGSTOP) }
func (p *process) resume() { p.t.Helper(); p.Signal(syscall.SIGCONT) }

// serves waits until the debug API is there.
func (p *process) serves() {
	p.t.Helper()
	eventually(p.t, func() error { _, _, err := ask(p.socket, "/livez"); return err })
}

// stop ends the process by a signal and checks that it ends well.
func (p *process) stop(sig syscall.Signal) {
	p.t.Helper()
	p.Signal(sig)
	select {
	case <-p.Ended:
	case <-time.After(patience):
		p.t.Fatalf("the agent did not end after %s", sig)
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("exit code %d after %s, want 0", code, sig)
	}
	if _, err := os.Lstat(p.socket); err == nil {
		p.t.Error("the agent left its socket")
	}
}

// ctl runs sluicectl on the agent and returns what it printed, and its exit code.
func (p *process) ctl(args ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("sluicectl"), append(args, "--socket", p.socket)...)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
