package vpp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// dial returns a link to an embedded vswitch. Each OnChange call sends a token to the channel.
func dial(t *testing.T) (l *vpp.Link, changed chan struct{}) {
	t.Helper()
	changed = make(chan struct{}, 100)
	l, err := vpp.Dial(vpp.Options{Adapter: vswitchtest.New(t, vswitch.Options{}).Adapter(), OnChange: func() { changed <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, changed
}

func connect(t *testing.T, l *vpp.Link) (epoch int) {
	t.Helper()
	epoch, _, err := l.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func TestLinkDropsConnectionAfterMissingAnswer(t *testing.T) {
	l, _ := dial(t)
	first := connect(t, l)
	for _, err := range []error{
		nil,
		fmt.Errorf("add a rule: %w", govpp.INVALID_VALUE),
		fmt.Errorf("%w: the renderer is closed", vpp.ErrNotConnected),
		fmt.Errorf("%w: no message", vpp.ErrIncompatible),
		fmt.Errorf("show version: %w", vpp.ErrNoCLI),
	} {
		l.Failed(err)
		if !l.Connected() || connect(t, l) != first {
			t.Fatalf("%v ended the connection", err)
		}
	}
	for last, err := range []error{context.DeadlineExceeded, errors.New("end of file"), context.Canceled} {
		l.Failed(err)
		if l.Connected() {
			t.Fatalf("%v did not end the connection", err)
		}
		if epoch := connect(t, l); epoch != first+last+1 {
			t.Errorf("after %v it is connection %d, want %d", err, epoch, first+last+1)
		}
		if _, err := l.CLI(t.Context(), "show version"); err != nil {
			t.Errorf("the new connection cannot be used: %v", err)
		}
	}
}

// silent is a proxy between a link and a vswitch that holds back replies while it is closed.
type silent struct {
	adapter.VppAPI
	open sync.RWMutex
}

func (s *silent) SetMsgCallback(cb adapter.MsgCallback) {
	s.VppAPI.SetMsgCallback(func(id uint16, data []byte) {
		s.open.RLock()
		defer s.open.RUnlock()
		cb(id, data)
	})
}

func TestLinkWaitsSinceFirstUnansweredCall(t *testing.T) {
	s := &silent{VppAPI: vswitchtest.New(t, vswitch.Options{}).Adapter()}
	l, err := vpp.Dial(vpp.Options{Adapter: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	connect(t, l)
	s.open.Lock()
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	answered := make(chan error)
	go func() {
		_, err := l.CLI(t.Context(), "show version")
		answered <- err
	}()
	for l.Unanswered().IsZero() {
		time.Sleep(time.Millisecond)
	}
	since := l.Unanswered()
	if _, err := l.CLI(late, "show version"); err == nil {
		t.Error("there is an answer")
	}
	if now := l.Unanswered(); now != since {
		t.Errorf("it waits since %v, and after another call since %v", since, now)
	}
	s.open.Unlock()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	for l.Unanswered().Equal(since) {
		time.Sleep(time.Millisecond)
	}
}

// TestLinkNoticesWithinSecond: a hanging vswitch owes an answer at the latest
// after the next health check.
func TestLinkNoticesWithinSecond(t *testing.T) {
	if sum := core.HealthCheckProbeInterval + renderer.Overdue; sum >= time.Second {
		t.Errorf("it takes %s", sum)
	}
	now := time.Now()
	for wait, alive := range map[time.Duration]bool{0: true, renderer.Overdue: true, renderer.Overdue + 1: false} {
		s := renderer.State{Renderer: "r", Connected: true, Unanswered: now.Add(-wait)}
		if err := s.Alive(now); (err == nil) != alive {
			t.Errorf("after %s without an answer: %v", wait, err)
		}
	}
}

// TestLinkEndsCallsWithConnection: after that no answer can come.
func TestLinkEndsCallsWithConnection(t *testing.T) {
	l, _ := dial(t)
	connect(t, l)
	ctx, done := l.Calls(t.Context())
	defer done()
	if err := vpp.Ended(ctx, errors.New("x")); err.Error() != "x" {
		t.Error(err)
	}
	l.Failed(errors.New("end of file"))
	<-ctx.Done()
	if err := vpp.Ended(ctx, ctx.Err()); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "closed the connection") {
		t.Error(err)
	}
	connect(t, l)
	next, release := l.Calls(t.Context())
	if next.Err() != nil {
		t.Error("calls of the next connection have ended")
	}
	if release(); vpp.Ended(next, nil) != nil {
		t.Error("no error has a reason")
	}
}

func TestLinkDoesNotConnectAfterClose(t *testing.T) {
	l, _ := dial(t)
	connect(t, l)
	l.Close()
	if _, _, err := l.Connect(t.Context()); !errors.Is(err, vpp.ErrNotConnected) || l.Connected() {
		t.Errorf("connected %t: %v, want %v", l.Connected(), err, vpp.ErrNotConnected)
	}
	l.Close() // again
}

func TestLinkCallsOnChange(t *testing.T) {
	l, changed := dial(t)
	connect(t, l)
	<-changed
	l.WakeAt(time.Now())
	<-changed
	l.Failed(errors.New("end of file"))
	connect(t, l)
	<-changed
	l.WakeAt(time.Now())
	<-changed
	l.Prompt()
	<-changed
}
