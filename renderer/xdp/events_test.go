package xdp_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// forEvents is how long events are waited for that must come, however busy the machine is.
const forEvents = time.Minute

// eventCollector collects events.
type eventCollector struct {
	l      *lab
	cancel context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	events []xdp.Event
}

// listen begins to collect the events of what happens.
func (l *lab) listen(t xdp.EventFilter) *eventCollector {
	l.t.Helper()
	if err := l.kernel.SetEventFilter(t); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	s := &eventCollector{l: l, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = l.kernel.Events(ctx, func(e xdp.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		})
	}()
	return s
}

// count returns how many events there are up to now.
func (s *eventCollector) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// end returns all events of what has happened: it waits until the program's buffer is empty,
// however long the reader takes.
func (s *eventCollector) end() []xdp.Event {
	s.l.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) { // between two looks
		unread, err := s.l.kernel.UnreadEvents()
		if err != nil || time.Since(began) > forEvents {
			s.l.t.Fatalf("%d bytes of events are not read: %v", unread, err)
		}
		if unread == 0 {
			break
		}
	}
	s.cancel()
	<-s.ended // so the last one that was read is in events
	if err := s.l.kernel.SetEventFilter(xdp.EventFilter{}); err != nil {
		s.l.t.Fatal(err)
	}
	return s.events
}

// eventsOf returns the events that happens causes, and fails if there are fewer than atLeast.
func (l *lab) eventsOf(t xdp.EventFilter, atLeast int, happens func()) []xdp.Event {
	l.t.Helper()
	s := l.listen(t)
	happens()
	out := s.end()
	if len(out) < atLeast {
		l.t.Fatalf("there were %d events, want %d", len(out), atLeast)
	}
	return out
}

// awaitTick returns when the clock of events has gone on: what happens then is later by it than
// what happened before.
func awaitTick(t *testing.T) {
	t.Helper()
	now := func() (ts unix.Timespec) {
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
			t.Fatal(err)
		}
		return ts
	}
	for began, before := time.Now(), now(); now() == before; runtime.Gosched() {
		if time.Since(began) > forEvents {
			t.Fatal("the clock of events stands still")
		}
	}
}

// onOneProcessor runs a test on one processor, so that there is one count of events.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runOn(t, processors(t)[0])
}

// runOn runs a test on a processor from now on.
func runOn(t *testing.T, cpu int) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
}

// processors are those that a test may run on.
func processors(t *testing.T) (out []int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

func TestEventsReportDropsWithTheirRuleAndAreLimited(t *testing.T) {
	const limit, packets = 5, 200
	onOneProcessor(t)
	l := newLab(t)
	origins := [][]api.Origin{nil, {{Policy: api.PolicyID{Namespace: "lab", Name: "web"}, Rule: api.IsolationRule}}}
	changes := renderer.Changes{Resync: true}
	changes.Render(labPod, podWith(renderer.NewRuleList([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), {}}, origins)))
	if err := l.r.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	f := tcpFlow(friend4, own4, 4000, 81)
	sent := 0
	began := time.Now()
	got := l.eventsOf(xdp.EventFilter{PerSecond: limit}, limit, func() {
		for range packets {
			sent++
			l.want(false, "another port", compile.ToPod, xdp.Frame(f, false))
		}
	})
	next := l.listen(xdp.EventFilter{PerSecond: limit}) // what was missed is in the next event, when there is one
	for again := time.Now(); next.count() == 0; time.Sleep(time.Millisecond) {
		l.want(false, "another port", compile.ToPod, xdp.Frame(f, false))
		if sent++; time.Since(again) > forEvents {
			t.Fatal("there are no events any more")
		}
	}
	var missed uint64
	for _, e := range next.end() {
		missed += e.Missed
	}
	for _, e := range got {
		missed += e.Missed
		pod, d := l.r.Explained(e)
		if e.Flow != f || e.Reason != xdp.ReasonPolicy || e.Direction != compile.ToPod || e.Interface != labID || e.Bytes != 54 {
			t.Errorf("the event is %+v", e)
		}
		if pod != labPod || d.Rule != 1 || d.Action != api.Deny || !slices.Equal(d.Origins, origins[1]) {
			t.Errorf("it is explained by pod %s and %+v", pod, d)
		}
		if e.Time.Before(began.Add(-time.Second)) || e.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("the event is of %s", e.Time)
		}
	}
	if most := limit * int(2+time.Since(began).Seconds()); len(got) > 8*most {
		t.Errorf("%d events for %d packets, want %d of each processor at most", len(got), sent, most)
	}
	if missed == 0 {
		t.Errorf("%d packets have no event, and none is counted", sent-len(got))
	}
}

// TestEventsAfterQuietTimeAreLimited: tokens that were not used in it do not add up.
func TestEventsAfterQuietTimeAreLimited(t *testing.T) {
	const limit, packets = 100, 400
	onOneProcessor(t)
	l := newLab(t)
	l.render(closed, nil)
	drop := func(n int) {
		for range n {
			l.want(false, "a packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		}
	}
	var flood time.Duration
	got := l.eventsOf(xdp.EventFilter{PerSecond: limit}, 3, func() {
		for range 3 {
			drop(1)
			time.Sleep(600 * time.Millisecond) // by the kernel's clock, which no test turns; more is as good
		}
		began := time.Now()
		drop(packets)
		flood = time.Since(began)
	})
	if most := 3 + limit + int(limit*flood.Seconds()) + 1; len(got) > most {
		t.Errorf("there were %d events, want %d at most", len(got), most)
	}
}

func TestEventsAreSampled(t *testing.T) {
	onOneProcessor(t)
	l := newLab(t)
	l.render(closed, nil)
	sent := 0
	got := l.eventsOf(xdp.EventFilter{PerSecond: 100000, OneIn: 10}, 10, func() {
		for range 1000 {
			sent++
			l.want(false, "a packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		}
	})
	if len(got) > sent/10+1 {
		t.Errorf("%d events for %d packets, want one in ten", len(got), sent)
	}
}

func TestEventsReportFirstPacketsIfPermittedIsSet(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		l := newLab(t)
		l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
		got := l.eventsOf(xdp.EventFilter{PerSecond: 1000, Permitted: permitted}, 1, func() {
			l.want(true, "the first packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
			l.want(true, "a later packet", compile.ToPod, flags(xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false), ack))
			l.want(false, "a denied packet", compile.ToPod, xdp.Frame(tcpFlow(other4, own4, 4000, 80), false))
		})
		passed := 0
		for _, e := range got {
			if e.Reason != "" {
				continue
			}
			passed++
			if _, d := l.r.Explained(e); d.Rule != 0 || d.Action != api.Permit {
				t.Errorf("what passed is explained by %+v", d)
			}
		}
		if want := len(got) / 2; permitted && passed != want || !permitted && passed != 0 {
			t.Errorf("of %d events %d are of packets that passed; they are asked for: %t", len(got), passed, permitted)
		}
	}
}

func TestEventsAreDisabledWithoutFilter(t *testing.T) {
	l := newLab(t)
	l.render(closed, nil)
	for _, perSecond := range []uint32{10, 0} {
		if err := l.kernel.SetEventFilter(xdp.EventFilter{PerSecond: perSecond}); err != nil {
			t.Fatal(err)
		}
		l.want(false, "a denied packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		awaitTick(t)
	}
	for _, e := range l.eventsOf(xdp.EventFilter{PerSecond: 10}, 0, func() {}) {
		t.Errorf("%+v was reported before anybody listened", e)
	}
}

func TestEventsNameRulesOfPastLists(t *testing.T) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), permitTCP(api.AddrNet(friend4), 82, compile.ToPod)}, nil)
	got := l.eventsOf(xdp.EventFilter{PerSecond: 1000}, 1, func() {
		l.want(false, "a packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
	})
	rule := func(want int) {
		t.Helper()
		if _, d := l.r.Explained(got[0]); d.Rule != want || d.Action != api.Deny {
			t.Errorf("it is explained by %+v, want rule %d", d, want)
		}
	}
	rule(2)
	awaitTick(t)
	l.render(closed, nil)
	rule(2)
	awaitTick(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	rule(-1) // of two lists ago
}
