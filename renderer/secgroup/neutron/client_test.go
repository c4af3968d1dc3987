package neutron

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

// answers is a Neutron that answers each call by a function.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func answer(r *http.Request, status int, retryAfter, body string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// TestClientHonoursRetryAfter: nothing is called until then, whatever the call, and no longer than
// MaxPause.
func TestClientHonoursRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "Fri, 01 Jan 2100 00:00:00 GMT": MaxPause, "86400": MaxPause, "": 0, "soon": 0, "-7": 0, "Fri, 01 Jan 1999 00:00:00 GMT": 0,
	} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				calls, busy := 0, true
				c := New(NoAuth("http://x", answers(func(r *http.Request) (*http.Response, error) {
					calls++
					if busy {
						return answer(r, status, header, ""), nil
					}
					return answer(r, http.StatusOK, "", `{"ports": []}`), nil
				})), Options{})
				if _, err := c.Ports(t.Context()); err == nil {
					t.Fatal("the answer is taken for a success")
				}
				busy = false
				if want > 0 {
					time.Sleep(want - time.Millisecond)
					_, err := c.Ports(t.Context())
					_, errApply := c.Apply(t.Context(), secgroup.Op{Kind: secgroup.DeleteGroup, ID: "x"})
					if err == nil || errApply == nil || calls != 1 || !strings.Contains(err.Error(), "asked to wait until") {
						t.Errorf("%d with %q: %d calls, %v, %v", status, header, calls, err, errApply)
					}
					time.Sleep(time.Millisecond)
				}
				if _, err := c.Ports(t.Context()); err != nil || calls != 2 {
					t.Errorf("%d with %q: after the pause %d calls, %v", status, header, calls, err)
				}
			})
		}
	}
}

// TestClientEndsCallsThatHang after Options.Timeout, each kind of them.
func TestClientEndsCallsThatHang(t *testing.T) {
	for kind := secgroup.CreateGroup; kind <= secgroup.SetGroups; kind++ {
		synctest.Test(t, func(t *testing.T) {
			c := New(NoAuth("http://x", answers(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})), Options{Timeout: 3 * time.Second})
			begin := time.Now()
			_, err := c.Apply(t.Context(), opOf(kind))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
				t.Errorf("%s: %v after %s", kind, err, time.Since(begin))
			}
			if errors.Is(err, secgroup.ErrGone) || errors.Is(err, secgroup.ErrInUse) || errors.Is(err, secgroup.ErrQuota) {
				t.Errorf("%s: it is taken for an answer: %v", kind, err)
			}
		})
	}
}

// TestClientTellsRefusalsApart: a project without rights is neither an object that is gone nor a
// quota, whatever the call.
func TestClientTellsRefusalsApart(t *testing.T) {
	for kind := secgroup.CreateGroup; kind <= secgroup.SetGroups; kind++ {
		c := New(NoAuth("http://x", answers(func(r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusForbidden, "", `{"NeutronError": {"type": "PolicyNotAuthorized", "message": "rule:x is disallowed"}}`), nil
		})), Options{})
		_, err := c.Apply(t.Context(), opOf(kind))
		if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "PolicyNotAuthorized") ||
			errors.Is(err, secgroup.ErrGone) || errors.Is(err, secgroup.ErrInUse) || errors.Is(err, secgroup.ErrQuota) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// opOf is a complete call of a kind.
func opOf(kind secgroup.OpKind) secgroup.Op {
	return secgroup.Op{
		Kind: kind, ID: "x", Name: "x", Rules: []secgroup.Rule{{Direction: api.Ingress}}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Groups: []string{"x"},
	}
}
