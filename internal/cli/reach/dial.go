package reach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Command is the command of sluicectl that runs in the pod of an agent.
const Command = "dial-stdio"

// greeting is what it writes first, once the agent's socket is open.
const greeting = "sluice agent\n"

// Dial connects with the socket of an agent.
func (c *Cluster) Dial(ctx context.Context, a Agent) (net.Conn, error) {
	if a.Problem != "" {
		return nil, errors.New(a.Problem)
	}
	exec, err := c.executor(a)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // the connection outlives what dials
	conn := &connection{Conn: near, end: end}
	var said head
	go func() {
		err := exec.StreamWithContext(running, remotecommand.StreamOptions{Stdin: far, Stdout: far, Stderr: &said})
		conn.broke(c.because(a, err, said.String()))
		_ = far.Close() // a pipe has no error
	}()
	greeted := make(chan error, 1)
	go func() {
		got := make([]byte, len(greeting))
		_, err := io.ReadFull(conn, got)
		if err == nil && string(got) != greeting {
			err = fmt.Errorf("pod %s answers %q in place of an agent", a.Pod, got)
		}
		greeted <- err
	}()
	select {
	case err = <-greeted:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // as above
		return nil, err
	}
	return conn, nil
}

func (c *Cluster) executor(a Agent) (remotecommand.Executor, error) {
	base, _, err := rest.DefaultServerUrlFor(c.api)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	u := base.JoinPath("api/v1/namespaces", c.namespace, "pods", a.Pod, "exec")
	u.RawQuery = url.Values{
		"container": {container}, "command": {"sluicectl", Command},
		corev1.StreamTypeStdin: {"true"}, corev1.StreamTypeStdout: {"true"}, corev1.StreamTypeStderr: {"true"},
	}.Encode()
	return remotecommand.NewWebSocketExecutor(c.api, http.MethodGet, u.String())
}

// because returns why a connection ended, from the error of the API server and what the command in the
// pod said.
func (c *Cluster) because(a Agent, err error, said string) error {
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	switch {
	case strings.Contains(said, "unknown command"), err != nil && strings.Contains(err.Error(), "executable file not found"):
		return fmt.Errorf("the image of pod %s has no \"sluicectl %s\": it is of an earlier version than this sluicectl, so update the agent, or ask it on its node", a.Pod, Command)
	case said != "":
		return fmt.Errorf("pod %s: %s", a.Pod, strings.TrimPrefix(said, "sluicectl: "))
	case err == nil:
		return io.EOF
	}
	err = fmt.Errorf("reach pod %s: %w", a.Pod, c.withRemedy(err))
	if strings.Contains(err.Error(), "bad handshake") && !strings.Contains(err.Error(), "forbidden") {
		err = fmt.Errorf("%w: it takes an API server of Kubernetes 1.30 or later, and proxies that pass WebSockets", err)
	}
	return err
}

// connection is a pipe to an agent. Once the other end has gone, reads return why.
type connection struct {
	net.Conn
	end context.CancelFunc

	mu    sync.Mutex
	cause error
}

func (c *connection) broke(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = err
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cause != nil {
			err = c.cause
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

// head keeps the begin of what the command in the pod says.
type head struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const mostSaid = 1 << 12

func (t *head) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(b[:min(len(b), mostSaid-t.text.Len())])
	return len(b), nil
}

func (t *head) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
