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

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 20

// Error is an answer of the agent that is none to the question. An error that is none of these says
// that the agent was not reached.
type Error struct {
	Status int    // of HTTP: 400 for a request that is wrong, 404 for what there is not, 503 for later
	Text   string // one line
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Client talks with the agent of a node. Its methods may be called by any goroutine, and end with
// their context. A client keeps no connection open.
type Client struct{ http http.Client }

// NewClient returns a client of the agent behind a Unix socket; empty for DefaultSocket.
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

// Register registers an interface. It returns when the interface is blocked, or already enforced.
func (c *Client) Register(ctx context.Context, r Registration) (e Endpoint, err error) {
	err = c.do(ctx, http.MethodPost, PathEndpoints, r, &e)
	return e, err
}

// Remove says that an interface is not a pod's any more. If it is there still, it lets nothing pass
// from then on. One that is not known is no error.
func (c *Client) Remove(ctx context.Context, a Attachment) error {
	return c.do(ctx, http.MethodDelete, PathEndpoints, a, nil)
}

// Collect ends the registrations of a network that are not among those that there are. Interfaces
// that are there still let nothing pass from then on.
func (c *Client) Collect(ctx context.Context, v Valid) error {
	return c.do(ctx, http.MethodPost, PathGC, v, nil)
}

// Wait returns when policy is enforced at a registered interface, and after a time, MaxTimeout at
// most, when it is not; the state says which. An attachment that is not registered is an Error with
// status 404.
func (c *Client) Wait(ctx context.Context, a Attachment, timeout time.Duration) (e Endpoint, err error) {
	q := url.Values{"containerId": {a.ContainerID}, "ifName": {a.IfName}, "timeout": {min(timeout, MaxTimeout).String()}}
	err = c.do(ctx, http.MethodGet, PathEnforced+"?"+q.Encode(), nil, &e)
	return e, err
}

// WaitVPP returns when an interface of VPP has the state that is waited for, and after a time when
// it has not; the state says which. An agent that does not enforce in VPP answers with an Error.
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

// do asks and reads the answer into out, if it is not nil.
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
