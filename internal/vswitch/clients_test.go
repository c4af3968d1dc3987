package vswitch

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/internal/vswitch/internal/classify/classifytest"
)

// doors are the two ways to connect, each with a way to cut all connections.
func doors(t *testing.T, sw *Switch) map[string]func() adapter.VppAPI {
	path := serve(t, sw)
	return map[string]func() adapter.VppAPI{
		"in process": sw.Adapter,
		"socket":     func() adapter.VppAPI { return socketclient.NewVppClient(path) },
	}
}

func fastHealthChecks(t *testing.T) {
	interval := core.HealthCheckProbeInterval
	core.HealthCheckProbeInterval = 5 * time.Millisecond
	t.Cleanup(func() { core.HealthCheckProbeInterval = interval })
}

func wantEvent(t *testing.T, events <-chan core.ConnectionEvent, want ...core.ConnectionState) {
	t.Helper()
	select {
	case e := <-events:
		if slices.Contains(want, e.State) {
			return
		}
		t.Fatalf("event %v (%v), want one of %v", e.State, e.Error, want)
	case <-time.After(time.Minute):
		t.Fatalf("no event, want one of %v", want)
	}
}

func TestClientsSurviveRestart(t *testing.T) {
	fastHealthChecks(t)
	sw := New(Options{})
	for name, door := range doors(t, sw) {
		t.Run(name, func(t *testing.T) {
			conn, events, err := core.AsyncConnect(door(), 1000, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Disconnect()
			wantEvent(t, events, core.Connected)
			mustPut(t, conn, newACLIndex, "t", both(RulePermit)...)
			pod := sw.AddInterface("pod", "")
			mustBind(t, conn, pod, []uint32{0}, nil)
			sw.Restart()
			wantEvent(t, events, core.Disconnected, core.NotResponding)
			wantEvent(t, events, core.Connected)
			if got := dumpACLs(t, conn, newACLIndex); len(got) != 0 {
				t.Errorf("%d ACLs survive a restart", len(got))
			}
			if got := sw.Interfaces()[pod]; len(got.Inputs) != 0 {
				t.Errorf("bindings survive a restart: %+v", got)
			}
			if index := mustPut(t, conn, newACLIndex, "t"); index != 0 {
				t.Errorf("first index after a restart is %d", index)
			}
		})
	}
}

func TestClientsHealthChecksAreAnswered(t *testing.T) {
	fastHealthChecks(t)
	sw := New(Options{})
	for name, door := range doors(t, sw) {
		t.Run(name, func(t *testing.T) {
			var conns sync.WaitGroup
			for i := range 4 {
				conn, events, err := core.AsyncConnect(door(), 3, time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Disconnect()
				wantEvent(t, events, core.Connected)
				conns.Go(func() {
					for n := range 100 {
						if _, err := vpe.NewServiceClient(conn).ShowVersion(t.Context(), &vpe.ShowVersion{}); err != nil {
							t.Errorf("client %d, request %d: %v", i, n, err)
						}
					}
					select {
					case e := <-events:
						t.Errorf("client %d: %v", i, e)
					default:
					}
				})
			}
			conns.Wait()
		})
	}
}

func TestClientsSeeSameACLs(t *testing.T) {
	sw := New(Options{})
	for name, door := range doors(t, sw) {
		t.Run(name, func(t *testing.T) {
			a, b := connect(t, door()), connect(t, sw.Adapter())
			index := mustPut(t, a, newACLIndex, "from a", both(RulePermit)...)
			if got := dumpACLs(t, b, index); len(got) != 1 || got[0].Tag != "from a" {
				t.Errorf("b sees %+v", got)
			}
		})
	}
}

func TestClientReconnects(t *testing.T) {
	sw := New(Options{})
	for name, door := range doors(t, sw) {
		t.Run(name, func(t *testing.T) {
			a := door()
			for range 3 {
				conn, err := core.Connect(a)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := vpe.NewServiceClient(conn).ShowVersion(t.Context(), &vpe.ShowVersion{}); err != nil {
					t.Error(err)
				}
				conn.Disconnect()
			}
			if err := a.SendMsg(1, make([]byte, 10)); err == nil {
				t.Error("a disconnected client can send")
			}
		})
	}
}

func TestSwitchCloseEndsClients(t *testing.T) {
	sw := New(Options{})
	path := serve(t, sw)
	inProcess, conn := sw.Adapter(), connect(t, socketclient.NewVppClient(path))
	if err := inProcess.Connect(); err != nil {
		t.Fatal(err)
	}
	if err := sw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := inProcess.SendMsg(1, make([]byte, 10)); err == nil {
		t.Error("a client of a closed switch can send")
	}
	if err := inProcess.Disconnect(); err != nil {
		t.Error(err)
	}
	if err := inProcess.WaitReady(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed switch is ready: %v", err)
	}
	if _, err := core.Connect(sw.Adapter()); !errors.Is(err, ErrClosed) {
		t.Errorf("connect to a closed switch: %v", err)
	}
	conn.Disconnect()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // it is closed by another goroutine
		c, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		_ = c.Close() // the switch does not serve it
		if time.Now().After(deadline) {
			t.Fatal("the listener is still open")
		}
	}
}

func TestClientsAreLimited(t *testing.T) {
	sw := New(Options{MaxClients: 1})
	path := serve(t, sw)
	first := connect(t, sw.Adapter())
	if _, err := core.Connect(sw.Adapter()); !errors.Is(err, errTooManyClients) {
		t.Errorf("second client: %v", err)
	}
	if _, err := core.Connect(socketclient.NewVppClient(path)); err == nil {
		t.Error("second client over the socket is accepted")
	}
	mustPut(t, first, newACLIndex, "")
}

func BenchmarkRoundTrip(b *testing.B) {
	sw := New(Options{})
	path := serve(b, sw)
	for name, a := range map[string]adapter.VppAPI{"in process": sw.Adapter(), "socket": socketclient.NewVppClient(path)} {
		conn := connect(b, a)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := vpe.NewServiceClient(conn).ShowVersion(b.Context(), &vpe.ShowVersion{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An update is a replacement of an ACL that interfaces share.
func BenchmarkReplace(b *testing.B) {
	for _, size := range []struct{ rules, ports int }{{1000, 1}, {1000, 100}, {10_000, 1}, {10_000, 100}} {
		b.Run(fmt.Sprintf("rules=%d/interfaces=%d", size.rules, size.ports), func(b *testing.B) {
			sw, conn := newTestSwitch(b, Options{})
			rules, _ := classifytest.PolicyRules(size.rules)
			index := mustPut(b, conn, newACLIndex, "t", rules...)
			for i := range size.ports {
				mustBind(b, conn, sw.AddInterface(fmt.Sprint(i), ""), nil, []uint32{index})
			}
			req := &acl.ACLAddReplace{ACLIndex: index, Tag: "t", R: wireRules(rules...)}
			for b.Loop() {
				if _, err := acl.NewServiceClient(conn).ACLAddReplace(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
