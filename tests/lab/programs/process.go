package programs

import (
	"bufio"
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

// Process is a program that runs, with what it has written so far. Its methods are for the
// goroutine of the test.
type Process struct {
	Cmd   *exec.Cmd
	Ended chan struct{} // closed when it has ended

	t     testing.TB
	mu    sync.Mutex
	lines []string // of both outputs
	next  int      // line to wait from
	grown chan struct{}
}

// Start starts a program by a function, as (*exec.Cmd).Start does it. It is killed with the test if
// it still runs then.
func Start(t testing.TB, start func(*exec.Cmd) error, name string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, Ended: make(chan struct{}), grown: make(chan struct{}, 1)}
	p.Cmd = exec.Command(Path(name), args...)
	// Nothing of this machine: neither its state, nor what a killed program leaves behind.
	p.Cmd.Env = append(os.Environ(), "SLUICE_STATE_FILE="+filepath.Join(t.TempDir(), "state"), "TMPDIR="+t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Cmd.Stdout, p.Cmd.Stderr = w, w
	if err := errors.Join(start(p.Cmd), w.Close()); err != nil {
		t.Fatal(err)
	}
	go p.read(r)
	t.Cleanup(func() { p.end(name, args) })
	return p
}

// end ends what still runs.
func (p *Process) end(name string, args []string) {
	sig := syscall.SIGKILL
	if p.t.Failed() {
		sig = syscall.SIGQUIT // a program that hangs prints where
	}
	_ = p.Cmd.Process.Signal(sig) // it may have ended
	_ = p.Cmd.Process.Signal(syscall.SIGCONT)
	<-p.Ended
	if p.t.Failed() {
		p.t.Logf("%s %s ended with %s and wrote:\n%s", name, strings.Join(args, " "), p.Cmd.ProcessState, p.Output())
	}
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// read collects lines until the process ends.
func (p *Process) read(r io.ReadCloser) {
	defer close(p.Ended)
	s := bufio.NewScanner(r)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
		select {
		case p.grown <- struct{}{}:
		default: // a notification is pending already
		}
	}
	_ = r.Close()    // it was read to its end
	_ = p.Cmd.Wait() // the code is in ProcessState
}

// Output returns what the program has written.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// Line waits for a line that matches, after the one that was waited for last, and
// returns its groups.
func (p *Process) Line(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(Patience)
	for {
		if m := p.scan(re); m != nil {
			return m
		}
		select {
		case <-p.grown:
		case <-p.Ended:
			if m := p.scan(re); m != nil {
				return m
			}
			p.t.Fatalf("the program ended and did not write %q", pattern)
		case <-timeout:
			p.t.Fatalf("the program did not write %q", pattern)
		}
	}
}

func (p *Process) scan(re *regexp.Regexp) []string {
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

// Kill ends the program without giving it a chance to do anything.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}
