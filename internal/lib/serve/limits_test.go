package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// short is a time that a test can wait for, and long leaves it alone.
const short = 50 * time.Millisecond

var long = limits{header: time.Hour, body: time.Hour, answer: time.Hour, idle: time.Hour}

// started serves on a network until the test ends, and returns where.
func started(t *testing.T, s Server, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr()
}

func dial(t *testing.T, a net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // maybe closed already
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended waits until the server closes a connection, and returns what came before.
func ended(t *testing.T, c net.Conn) string {
	t.Helper()
	text, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection is not closed: %v, after %q", err, text)
	}
	return string(text)
}

func get(a net.Addr, path string) (int, string, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(a.Network(), a.String())
	}}}
	r, err := client.Get("http://test" + path)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), errors.Join(err, r.Body.Close())
}

// TestServerCutsSlowClients: there are time limits for a header, a body and between requests.
func TestServerCutsSlowClients(t *testing.T) {
	read := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.ReadAll(r.Body)
			read <- err
		}
		Say(w, http.StatusOK, "ok\n")
	})
	with := func(change func(*limits)) net.Addr {
		l := long
		change(&l)
		return started(t, Server{limits: l, Handler: handler}, "tcp", "127.0.0.1:0")
	}
	send := func(c net.Conn, text string) net.Conn {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, text := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n"} {
		if got := ended(t, send(dial(t, with(func(l *limits) { l.header = short })), text)); strings.Contains(got, "200") {
			t.Errorf("who sends %q gets %q", text, got)
		}
	}
	c := send(dial(t, with(func(l *limits) { l.body = short })), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123")
	select {
	case err := <-read:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading a body that does not come ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a body that does not come is waited for")
	}
	ended(t, c)
	if got := ended(t, send(dial(t, with(func(l *limits) { l.idle = short })), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")); !strings.HasSuffix(got, "ok\n") {
		t.Errorf("a connection that is idle after a request got %q", got)
	}
}

// TestServerRefusesLongHeader: it is cut long before it is kept.
func TestServerRefusesLongHeader(t *testing.T) {
	c := dial(t, started(t, Server{limits: long, Handler: http.NotFoundHandler()}, "tcp", "127.0.0.1:0"))
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
	for i := 0; err == nil; i++ {
		if i == 1<<12 {
			t.Fatal("a header of 4 MiB is taken")
		}
		_, err = fmt.Fprintf(c, "X: %s\r\n", strings.Repeat("x", 1<<10))
	}
}

// TestServerCutsClientsThatDoNotRead: except streams, which extend their limit.
func TestServerCutsClientsThatDoNotRead(t *testing.T) {
	for _, extend := range []time.Duration{0, 100 * time.Millisecond} {
		result := make(chan error, 1)
		at := started(t, Server{limits: long, Answer: 100 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for err == nil {
				if extend > 0 {
					Extend(w, extend)
				}
				_, err = w.Write(make([]byte, 1<<20))
			}
			result <- err
		})}, "tcp", "127.0.0.1:0")
		c := dial(t, at)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-result:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("writing to who does not read ends with %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("who does not read is waited for")
		}
	}
}

// TestServerAllowsSlowAnswers: the time limit of a body does not apply to the answer.
func TestServerAllowsSlowAnswers(t *testing.T) {
	limited := long
	limited.body = short
	at := started(t, Server{limits: limited, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
			t.Error("a request ends while it is answered")
		case <-time.After(4 * short): // nothing happens: that is what is tested
		}
		Say(w, http.StatusOK, "late\n")
	})}, "tcp", "127.0.0.1:0")
	c := dial(t, at)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Errorf("the answer is %q, %v", line, err)
	}
}

// TestServerBoundsIdleConnections opens many connections that send nothing: few are kept, and a
// request in between is answered.
func TestServerBoundsIdleConnections(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	many := int(min(15000, limit.Cur/2))
	at := started(t, Server{limits: long, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Say(w, http.StatusOK, "ok\n")
	})}, "tcp", "127.0.0.1:0")
	before := descriptors(t)
	for i := range many {
		dial(t, at)
		if i%1000 == 999 {
			if status, _, err := get(at, "/"); err != nil || status != http.StatusOK {
				t.Fatalf("with %d idle connections: %d, %v", i+1, status, err)
			}
		}
	}
	if kept := descriptors(t) - before - many; kept > mostConnections {
		t.Errorf("the server has %d descriptors for %d idle connections, want %d at most", kept, many, mostConnections)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// fake is a connection of which only the ends matter.
type fake struct {
	net.Conn
	from, to string
	closed   bool
}

func tcp(s string) net.Addr {
	host, port, _ := net.SplitHostPort(s)
	n := 0
	_, _ = fmt.Sscan(port, &n)
	return &net.TCPAddr{IP: net.ParseIP(host), Port: n}
}

func (f *fake) RemoteAddr() net.Addr { return tcp(f.from) }
func (f *fake) LocalAddr() net.Addr  { return tcp(f.to) }
func (f *fake) Close() error         { f.closed = true; return nil }

type nowhere struct{ net.Listener }

func (nowhere) Addr() net.Addr { return tcp("192.0.2.1:9417") }

// TestPlacesAreShared: a client with many connections keeps out neither others nor the node itself.
func TestPlacesAreShared(t *testing.T) {
	p := &places{Listener: nowhere{}, most: 16, log: slog.New(slog.DiscardHandler)}
	port := 1000
	take := func(from string, busy bool) bool {
		port++
		f := &fake{from: fmt.Sprintf("[%s]:%d", from, port), to: "[192.0.2.1]:9417"}
		c, replaced := p.enter(f)
		if replaced != nil {
			_ = replaced.Conn.Close()
		}
		if c != nil && busy {
			p.state(c, http.StateActive)
		}
		return c != nil
	}
	of := func(from string) (n int) {
		for _, o := range p.open {
			if o.from == from {
				n++
			}
		}
		return n
	}

	for range 100 {
		if ok := take("198.51.100.1", false); !ok {
			t.Fatal("idle connections make no room")
		}
	}
	if n := of("198.51.100.1"); n != 4 {
		t.Errorf("one address has %d of 16 places, want 4", n)
	}
	for i := range 100 { // one host has a network of IPv6 to itself
		take(fmt.Sprintf("2001:db8::%x", i+1), false)
	}
	if n := of("2001:db8::/64"); n != 4 {
		t.Errorf("one network of IPv6 has %d of 16 places, want 4", n)
	}
	for range 10 { // requests that are answered are cut only for who has fewer
		take("198.51.100.2", true)
	}
	if n := of("198.51.100.2"); n != 4 {
		t.Errorf("an address with slow requests has %d of 16 places, want 4", n)
	}
	for i := range 50 {
		take(fmt.Sprintf("203.0.113.%d", i+1), true)
	}
	if len(p.open) != 12 {
		t.Errorf("%d connections of other hosts are open, want 12", len(p.open))
	}
	if ok := take("203.0.113.99", true); ok {
		t.Error("all others answer requests, and there is room")
	}
	for _, node := range []string{"192.0.2.1", "127.0.0.1", "::1", "192.0.2.1"} {
		if ok := take(node, true); !ok {
			t.Errorf("%s finds no place of the node's", node)
		}
	}
	if len(p.open) > p.most {
		t.Errorf("%d connections are open, want %d at most", len(p.open), p.most)
	}
	for _, o := range p.open {
		if o.Conn.(*fake).closed {
			t.Error("a connection that was closed has a place")
		}
	}
}

// TestListenWithoutHostIsLoopback: leaving the host out never means all addresses.
func TestListenWithoutHostIsLoopback(t *testing.T) {
	l, err := Listen(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() {
		t.Errorf("it listens on %s", a)
	}
	all, err := Listen(t.Context(), "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	if a := all.Addr().(*net.TCPAddr); !a.IP.IsUnspecified() {
		t.Errorf("all addresses are %s", a)
	}
	if _, err := Listen(t.Context(), "nowhere"); err == nil {
		t.Error("an address without a port is none")
	}
}

// TestPeerIsThatOfKernel: of a Unix socket, and of nothing else.
func TestPeerIsThatOfKernel(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := PeerOf(r.Context())
		if err != nil {
			Say(w, http.StatusForbidden, err.Error())
			return
		}
		Say(w, http.StatusOK, fmt.Sprintf("%d %d %t", p.UID, p.GID, p.In(uint32(os.Getegid()))))
	})
	local := started(t, Server{Handler: handler}, "unix", filepath.Join(t.TempDir(), "s"))
	if status, text, err := get(local, "/"); status != http.StatusOK || text != fmt.Sprintf("%d %d true", os.Geteuid(), os.Getegid()) || err != nil {
		t.Errorf("%d %q, %v", status, text, err)
	}
	remote := started(t, Server{Handler: handler}, "tcp", "127.0.0.1:0")
	if status, text, err := get(remote, "/"); status != http.StatusForbidden || err != nil {
		t.Errorf("over TCP: %d %q, %v", status, text, err)
	}
}
