package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/view"
)

// client sends requests to an agent's debug API: over its Unix socket, or to that of a node of a
// cluster.
type client struct {
	socket    string
	node, pod string // of a cluster; empty for a socket
	problem   string // why it cannot be reached, as far as its pod shows
	http      *http.Client
	remark    func(c *client, stale string) // is told why an answer may lack changes; nil: nobody
	patience  time.Duration                 // for each answer, but those of a stream; 0: any
}

func newClient(socket string, patience time.Duration) *client {
	c := &client{socket: socket, patience: patience}
	c.dials(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})
	return c
}

// dials sets how the client connects.
func (c *client) dials(dial func(ctx context.Context) (net.Conn, error)) {
	// A small answer must not become a large one here.
	c.http = &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
}

// where is the place of the agent, as in "the agent on node-1".
func (c *client) where() string { return cmp.Or(c.node, c.socket) }

// whereItLogs is where to look when the agent fails.
func (c *client) whereItLogs() string {
	if c.pod != "" {
		return "see the log of its pod " + c.pod
	}
	return `see its log; "sluice-agent" on this node`
}

func (c *client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

// post sends a value as JSON.
func (c *client) post(ctx context.Context, path string, in, out any) error {
	return c.do(ctx, http.MethodPost, path, in, out)
}

func (c *client) do(ctx context.Context, method, path string, in, out any) error {
	answer, err := c.answer(ctx, method, path, in, mostAnswer+1)
	if err != nil {
		return err
	}
	if len(answer) > mostAnswer {
		return fmt.Errorf("the agent on %s answers %s with more than %d MiB", c.where(), path, mostAnswer>>20)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("cannot parse the agent's answer to %s (another version?): %w", path, err)
	}
	return nil
}

// mostAnswer bounds an answer, mostLine a line of a stream: one node must not take the memory of who asks
// all. The state of 100 000 pods has 70 MB.
const (
	mostAnswer = 1 << 30
	mostLine   = 4 << 20
)

// errSlow is the cause of the end of a question that the agent took too long to answer.
var errSlow = errors.New("the agent took too long")

// answer returns what the agent answers within the client's patience, the first most bytes of it.
func (c *client) answer(ctx context.Context, method, path string, in any, most int64) ([]byte, error) {
	if c.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.patience, errSlow)
		defer cancel()
	}
	resp, err := c.send(ctx, method, path, in)
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(resp.Body, most))
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			err = c.cutOff(err)
		}
	}
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return nil, fmt.Errorf("the agent on %s did not answer within %s (%s); --%s gives it more time", c.where(), c.patience, c.whereItLogs(), requestTimeout)
	}
	return b, err
}

// send asks, with a value as JSON unless it is nil. The caller closes the body of the answer,
// which is a good one.
func (c *client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("encode the question: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		if stale := resp.Header.Get(view.StaleHeader); stale != "" && c.remark != nil {
			c.remark(c, stale)
		}
		return resp, nil
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostError))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, c.cutOff(err)
	}
	words := oneLine(string(answer))
	if words == errNotServed.Error() {
		return nil, fmt.Errorf("agent: %w", errNotServed)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return nil, fmt.Errorf("the agent failed while answering (%s): %s", c.whereItLogs(), cmp.Or(words, resp.Status))
	}
	return nil, fmt.Errorf("agent: %s", cmp.Or(words, resp.Status))
}

// errNotServed is the answer of Go's server to a path that it does not know.
var errNotServed = errors.New("404 page not found")

// mostError is how many bytes of an error are read.
const mostError = 1 << 20

// oneLine returns a text of the agent for an error: names in it may have newlines, which begin no
// line of ours.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

// cutOff is about an answer that ended before it was complete.
func (c *client) cutOff(err error) error {
	if isCutOff(err) {
		return fmt.Errorf("the agent on %s closed the connection before it had answered: it failed, or has ended (%s): %w", c.where(), c.whereItLogs(), err)
	}
	return fmt.Errorf("read the agent's answer: %w", err)
}

// isCutOff reports whether the agent closed a connection.
func isCutOff(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, func(end error) bool { return errors.Is(err, end) })
}

// remedy is how a user reaches an agent if none listens on the socket.
func remedy(socket string, user int, there func(path string) bool) string {
	if user != 0 && socket != view.RootSocket && there(view.RootSocket) {
		return "use sudo, root's is on " + view.RootSocket
	}
	return `start one with "sluice-agent dev --manifests DIR"`
}

// there reports whether there is a file, also one that may not be read.
func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil || errors.Is(err, fs.ErrPermission)
}

// unreachable returns an error with what to do if there is no agent.
func (c *client) unreachable(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL is made up
	}
	switch {
	case c.node != "" && !isCutOff(err):
		return fmt.Errorf("%s: %w", c.node, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent listens on %s: %s, or name its socket with --socket, or a cluster with --context: %w", c.socket, remedy(c.socket, os.Geteuid(), there), err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the agent on %s belongs to another user: %w", c.socket, err)
	case isCutOff(err):
		return c.cutOff(err)
	}
	return fmt.Errorf("ask the agent on %s: %w", c.where(), err)
}

// Get, Post, Stream and IsGone implement traffic.Agent.
func (c *client) Get(ctx context.Context, path string, out any) error { return c.get(ctx, path, out) }

// Post implements traffic.Agent.
func (c *client) Post(ctx context.Context, path string, in, out any) error {
	return c.post(ctx, path, in, out)
}

// NodeName implements traffic.Agent.
func (c *client) NodeName() string { return c.node }

// IsGone implements traffic.Agent.
func (*client) IsGone(err error) bool {
	if _, unreached := errors.AsType[unreachedError](err); unreached {
		return true
	}
	return errors.Is(err, errAgentEnded) || isCutOff(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

var errAgentEnded = errors.New("the agent has ended")

// wholeLines is bufio.ScanLines, for which a line without an end was cut off.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	advance, line, err = bufio.ScanLines(data, atEOF)
	if advance > 0 && data[advance-1] != '\n' {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return advance, line, err
}

// Stream implements traffic.Agent.
func (c *client) Stream(ctx context.Context, path string, question any, last bool, begun func(), f func(json.RawMessage) error) error {
	resp, err := c.send(ctx, http.MethodPost, path, question)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	begun()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, mostLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if err := f(slices.Clone(lines.Bytes())); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("the agent on %s sends a line of more than %d MiB", c.where(), mostLine>>20)
	case err != nil:
		return c.cutOff(err)
	case last:
		return nil
	}
	return errAgentEnded
}
