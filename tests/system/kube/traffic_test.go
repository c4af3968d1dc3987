package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/tests/lab/wires"
)

// Ports of the servers, on which netexec answers.
const (
	httpPort = "8080"
	udpPort  = "8081"
)

// networkOf opens the network namespace of a pod that runs. The kubelet has the UID of a pod in the
// names of the cgroups of its processes.
func networkOf(uid string) (netns.NsHandle, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return netns.None(), err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "pod"+uid) {
			continue // it ended, or is not of the pod
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return netns.None(), err
		}
		if ns, err := netns.GetFromPid(pid); err == nil {
			return ns, nil
		}
	}
	return netns.None(), fmt.Errorf("no process of the pod with uid %s", uid)
}

// network opens the network namespace of a pod, or of a machine, until the test ends.
func (s space) network(name string) netns.NsHandle {
	s.t.Helper()
	var ns netns.NsHandle
	err := await("the processes of "+name, func() (err error) {
		if pid := s.pid(name); pid != 0 {
			ns, err = netns.GetFromPid(pid)
			return err
		}
		uid, err := s.kube("", "-n", s.name, "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
		if err == nil {
			ns, err = networkOf(strings.TrimSpace(uid))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = ns.Close() }) // it was only used
	return ns
}

// dialIn dials from a network namespace.
func dialIn(ns netns.NsHandle, network, to string, wait time.Duration) (conn net.Conn, err error) {
	err = wires.Inside(ns, func() (err error) {
		conn, err = net.DialTimeout(network, to, wait)
		return err
	})
	return conn, err
}

// ask sends a server a request of its protocol, and waits for an answer.
func ask(ns netns.NsHandle, network, to string, wait time.Duration) (answer string, err error) {
	conn, err := dialIn(ns, network, to, wait)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := "hostname"
	if network == "tcp" {
		request = "GET /hostname HTTP/1.0\r\n\r\n"
	}
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return "", err
	}
	b := make([]byte, 2048)
	n, err := conn.Read(b)
	if err != nil {
		return "", err
	}
	_, body, _ := strings.Cut("\r\n\r\n"+string(b[:n]), "\r\n\r\n")
	if at := strings.LastIndex(body, "\r\n\r\n"); at >= 0 {
		body = body[at+4:]
	}
	return strings.TrimSpace(body), nil
}

// traffic is what became of requests that are made all the time.
type traffic struct {
	what     string
	want     bool // whether each must be answered, or none
	asked    atomic.Int64
	answered atomic.Int64
	lastErr  atomic.Value
	slowest  atomic.Int64 // nanoseconds
	stalled  atomic.Int64 // requests that failed while the machine stalled: they say nothing
	stop     func()
}

// stall is for how long a machine does not run a process that is ready when it stalls: it also
// holds up the node and the server, so that requests end without an answer.
const stall = time.Second

// pauses measure for how long this process did not run.
type pauses struct{ longest atomic.Int64 } // nanoseconds

// watch measures until ctx ends.
func (p *pauses) watch(ctx context.Context) {
	const interval = 20 * time.Millisecond
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(interval)
		now := time.Now()
		p.longest.Store(max(p.longest.Load(), int64(now.Sub(last)-interval)))
		last = now
	}
}

// Waits for an answer: a request that is permitted has time, since packets that are lost are sent
// again.
const (
	permittedWait = 5 * time.Second
	deniedWait    = 200 * time.Millisecond
)

// keepAsking has a pod ask a server, one request after the other, until stop is called.
func (s space) keepAsking(from, network, to string, want bool) *traffic {
	s.t.Helper()
	ns := s.network(from)
	t := &traffic{what: fmt.Sprintf("%s to %s by %s", from, to, network), want: want}
	wait := deniedWait
	if want {
		wait = permittedWait
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	var paused pauses
	running.Go(func() { paused.watch(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			paused.longest.Store(0)
			_, err := ask(ns, network, to, wait)
			if err != nil && paused.longest.Load() > int64(stall) {
				t.stalled.Add(1)
				continue
			}
			t.asked.Add(1)
			if err == nil {
				t.answered.Add(1)
				t.slowest.Store(max(t.slowest.Load(), int64(time.Since(begin))))
			} else {
				t.lastErr.Store(err.Error())
			}
			if want {
				time.Sleep(5 * time.Millisecond) // others run on this machine, too
			}
		}
	})
	t.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(t.stop)
	return t
}

// check ends traffic, and reports errors. There must have been some traffic.
func (t *traffic) check(test testing.TB) {
	test.Helper()
	t.stop()
	asked, answered := t.asked.Load(), t.answered.Load()
	test.Logf("%s: %d of %d requests were answered, the slowest after %s; %d failed while the machine stalled", t.what, answered, asked, time.Duration(t.slowest.Load()).Round(time.Millisecond), t.stalled.Load())
	wrong := answered
	if t.want {
		wrong = asked - answered
	}
	if wrong > 0 {
		test.Errorf("%s: %d of %d requests were answered, want all or none of them: %t (%v)", t.what, answered, asked, t.want, t.lastErr.Load())
	}
	if asked < 10 {
		test.Errorf("%s: only %d requests", t.what, asked)
	}
}

// stream is one connection over which requests are made all the time.
type stream struct {
	asked atomic.Int64
	err   error
	stop  func()
}

// keepTalking has a pod make requests over one connection until stop is called, or until it breaks.
func (s space) keepTalking(from, to string) *stream {
	s.t.Helper()
	conn, err := dialIn(s.network(from), "tcp", to, patience)
	if err != nil {
		s.t.Fatal(err)
	}
	st := &stream{}
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 2048)
		for ctx.Err() == nil && st.err == nil {
			if st.err = conn.SetDeadline(time.Now().Add(patience)); st.err != nil {
				return
			}
			if _, st.err = fmt.Fprintf(conn, "GET /hostname HTTP/1.1\r\nHost: %s\r\n\r\n", to); st.err != nil {
				return
			}
			if _, st.err = conn.Read(b); st.err == nil {
				st.asked.Add(1)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	st.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = conn.Close() // what it carried was counted
	})
	s.t.Cleanup(st.stop)
	return st
}

func (st *stream) check(t testing.TB) {
	t.Helper()
	st.stop()
	if st.err != nil {
		t.Errorf("a permitted stream broke after %d requests: %v", st.asked.Load(), st.err)
	}
	t.Logf("a stream carried %d requests", st.asked.Load())
}
