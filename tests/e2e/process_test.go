package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs, with what it has written so far.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket string // of its debug API
	ended  chan struct{}

	mu    sync.Mutex
	lines []string // of both outputs
	next  int      // line to wait from
	grown chan struct{}
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

// startProgramBy is startProgram where it matters who starts it.
func startProgramBy(t testing.TB, start func(*exec.Cmd) error, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{}), grown: make(chan struct{}, 1)}
	p.cmd = exec.Command(program(name), args...)
	p.cmd.Env = append(os.Environ(), "SLUICE_STATE_FILE="+filepath.Join(t.TempDir(), "state")) // not that of this machine
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := errors.Join(start(p.cmd), w.Close()); err != nil {
		t.Fatal(err)
	}
	go p.read(r)
	t.Cleanup(func() {
		sig := syscall.SIGKILL
		if t.Failed() {
			sig = syscall.SIGQUIT // a program that hangs tells where
		}
		_ = p.cmd.Process.Signal(sig) // it may have ended
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		<-p.ended
		if t.Failed() {
			t.Logf("%s %s ended with %s and wrote:\n%s", name, strings.Join(args, " "), p.cmd.ProcessState, p.output())
		}
	})
	return p
}

// halt has the process stand still, resume go on.
func (p *process) halt()   { p.t.Helper(); p.signal(syscall.SIGSTOP) }
func (p *process) resume() { p.t.Helper(); p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// read collects lines until the process ends.
func (p *process) read(r io.ReadCloser) {
	defer close(p.ended)
	s := bufio.NewScanner(r)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
		select {
		case p.grown <- struct{}{}:
		default: // somebody is told already
		}
	}
	_ = r.Close()    // it was read to its end
	_ = p.cmd.Wait() // the code is in ProcessState
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// line waits for a line that matches, after the one that was waited for last, and
// returns its groups.
func (p *process) line(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(patience)
	for {
		if m := p.scan(re); m != nil {
			return m
		}
		select {
		case <-p.grown:
		case <-p.ended:
			if m := p.scan(re); m != nil {
				return m
			}
			p.t.Fatalf("the program ended and did not write %q", pattern)
		case <-timeout:
			p.t.Fatalf("the program did not write %q", pattern)
		}
	}
}

func (p *process) scan(re *regexp.Regexp) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.next < len(p.lines); p.next++ {
		if m := re.FindStringSubmatch(p.lines[p.next]); m != nil {
			p.next++
			return m
		}
	}
	return nil
}

// serves waits until the debug API is there.
func (p *process) serves() {
	p.t.Helper()
	eventually(p.t, func() error { _, _, err := ask(p.socket, "/livez"); return err })
}

// stop ends the process by a signal and checks that it ends well.
func (p *process) stop(sig syscall.Signal) {
	p.t.Helper()
	p.signal(sig)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the agent did not end after %s", sig)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
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

// eventually polls until it is satisfied, or fails the test.
func eventually(t testing.TB, satisfied func() error) {
	t.Helper()
	if err := poll(satisfied); err != nil {
		t.Fatal(err)
	}
}
