package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// outcome is what one run of a test binary came to.
type outcome struct {
	failed  bool
	test    string // the first that failed, or what the process said last
	timeout bool   // it was still running when its time was over
	took    time.Duration
	output  string // the end of it
}

// invocation is one run of a test binary.
type invocation struct {
	binary, dir string
	tmp         string // folder for temporary files
	args        []string
	limit       time.Duration
	long        string // how much is drawn, see renderertest.Extent
	kernel      bool   // packets run there; then nothing is ended in its middle, which could leave something behind
}

// environment returns the variables that a test binary gets in addition to those of this process.
func (i invocation) environment() []string {
	out := []string{"TMPDIR=" + i.tmp, "SLUICE_LONG=" + i.long}
	if i.kernel { // even if the caller has set it
		return append(out, "SLUICE_STACK=xdp-kernel", "SLUICE_NO_KERNEL=")
	}
	return append(out, "SLUICE_NO_KERNEL=1")
}

// verbose makes a test say that it has failed as soon as it has, and not when all tests
// around it have ended. Such lines begin with a mark.
const verbose = "-test.v=test2json"

// overtime is what a test binary prints when its time is over, before the stacks of all goroutines.
// A binary that does not even do that is killed after a grace period.
const (
	overtime = "panic: test timed out after"
	grace    = 5 * time.Second
)

// failure is how a failed test announces itself; the innermost comes first.
var failure = regexp.MustCompile(`(?:^|\x16)\s*--- FAIL: (\S+)`)

// run runs a test binary until it ends, or until the first test has failed: the other results do
// not matter then.
func (i invocation) run(ctx context.Context) (outcome, error) {
	ctx, stop := context.WithTimeout(ctx, i.limit+grace)
	defer stop()
	args := append([]string{verbose, "-test.failfast", "-test.timeout=" + i.limit.String()}, i.args...)
	cmd := exec.CommandContext(ctx, i.binary, args...)
	cmd.Dir, cmd.Env = i.dir, append(os.Environ(), i.environment()...)
	cmd.WaitDelay = time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return outcome{}, fmt.Errorf("start %s: %w", i.binary, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = w.Close() // of a pipe: never fails
		ended <- err
	}()
	if i.kernel {
		stop = func() {} // no other test begins
	}
	out := follow(r, stop)
	err := <-ended
	out.took = time.Since(start)
	switch {
	case out.failed:
	case errors.Is(ctx.Err(), context.DeadlineExceeded), strings.Contains(out.output, overtime):
		out.failed, out.timeout, out.test = true, true, "still running after "+i.limit.String()
	case err != nil:
		out.failed, out.test = true, lastWords(out.output, err)
	}
	return out, nil
}

// keptLines is how much of the output is kept for diagnosis.
const keptLines = 400

// follow reads the output and stops the process at the first failure.
func follow(r io.Reader, stop func()) outcome {
	var out outcome
	var lines []string
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if len(lines) >= keptLines {
			lines = lines[1:]
		}
		lines = append(lines, line)
		if m := failure.FindStringSubmatch(line); m != nil && !out.failed {
			out.failed, out.test = true, m[1]
			stop()
		}
		if err != nil {
			out.output = strings.Join(lines, "")
			return out
		}
	}
}

// lastWords describes how a process ended in which no test has failed: it panicked in a goroutine,
// or complained after the tests.
func lastWords(output string, err error) string {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return "after the tests: " + err.Error()
}
