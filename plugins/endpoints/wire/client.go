package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds the size of an answer in bytes.
const maxAnswer = 16 << 20

// Error is an error response of the agent. Any other error means that the agent was not reached.
type Error struct {
	// HTTP status: 400 for an invalid request, 404 for an unknown object, 503 for try again later
	Status int
	Text   string // one line
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Client talks to the agent of a node. It is safe for concurrent use; calls end with their context.
// A client keeps no connection open.
type Client struct{ http http.Client }

// NewClient returns a client of the agent behind a Unix socket; empty means DefaultSocket.
func NewClient(socket string) *Client {
	if socket == "" {
		socket = DefaultSocket
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Register registers an interface. When it returns, the interface is blocked or already enforced.
func (c *Client) Register(ctx context.Context, r Registration) (e Endpoint, err error) {
	err = c.do(ctx, http.MethodPost, PathEndpoints, r, &e)
	return e, err
}

// Remove ends the registration of an interface. If the interface still exists, it is blocked from
// then on. An unknown attachment is no error.
func (c *Client) Remove(ctx context.Context, a Attachment) error {
	return c.do(ctx, http.MethodDelete, PathEndpoints, a, nil)
}

// Collect ends the registrations of a network that are not in the list of valid ones. Existing
// interfaces are blocked from then on.
func (c *Client) Collect(ctx context.Context, v Valid) error {
	return c.do(ctx, http.MethodPost, PathGC, v, nil)
}

// Wait returns when policy is enforced at the interface of an attachment, or after timeout,
// MaxTimeout at most; check the state. An attachment that is not registered, and that no result of
// CNI names, returns an Error with status 404.
func (c *Client) Wait(ctx context.Context, a Attachment, timeout time.Duration) (e Endpoint, err error) {
	q := url.Values{"containerId": {a.ContainerID}, "ifName": {a.IfName}, "timeout": {min(timeout, MaxTimeout).String()}}
	err = c.do(ctx, http.MethodGet, PathEnforced+"?"+q.Encode(), nil, &e)
	return e, err
}

// WaitVPP returns when an interface of VPP has the requested state, or after the timeout; check the
// state. An agent without the VPP dataplane returns an Error.
func (c *Client) WaitVPP(ctx context.Context, v VPP) (e Endpoint, err error) {
	q := url.Values{
		"interface": {v.Interface}, "namespace": {v.Namespace}, "name": {v.Name}, "until": {v.Until}, "timeout": {min(v.Timeout, MaxTimeout).String()},
	}
	err = c.do(ctx, http.MethodGet, PathVPP+"?"+q.Encode(), nil, &e)
	return e, err
}

// List returns all interfaces that the agent knows, by index.
func (c *Client) List(ctx context.Context) (out []Endpoint, err error) {
	err = c.do(ctx, http.MethodGet, PathEndpoints, nil, &out)
	return out, err
}

// do sends a request and decodes the answer into out, if it is not nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) (err error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	a, err := c.http.Do(q)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer func() { err = errors.Join(err, a.Body.Close()) }()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if a.StatusCode >= http.StatusBadRequest {
		return &Error{Status: a.StatusCode, Text: strings.TrimSpace(string(b))}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
