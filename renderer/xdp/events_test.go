package xdp_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/wires"
)

// told returns the events of what happens, as many as there must be at least.
func (l *lab) told(t xdp.Telling, atLeast int, happens func()) (out []xdp.Event) {
	l.t.Helper()
	if err := l.kernel.Tell(t); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), wires.Patience)
	defer cancel()
	events, ended := make(chan xdp.Event, 4096), make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.kernel.Events(ctx, func(e xdp.Event) { events <- e })
	}()
	happens()
	for {
		select {
		case e := <-events:
			out = append(out, e)
			continue
		case <-time.After(300 * time.Millisecond): // longer than the reader waits
		case <-ctx.Done():
		}
		break
	}
	cancel()
	<-ended
	if err := l.kernel.Tell(xdp.Telling{}); err != nil {
		l.t.Fatal(err)
	}
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
		if time.Since(began) > wires.Patience {
			t.Fatal("the clock of events stands still")
		}
	}
}

// onOneProcessor has a test run where one count of events is.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runOn(t, processors(t)[0])
}

// runOn has a test run on a processor from now on.
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

func TestEventsTellOfDropsWithTheirRuleAndAreLimited(t *testing.T) {
	const limit, packets = 5, 200
	onOneProcessor(t)
	l := newLab(t)
	origins := [][]api.Origin{nil, {{Policy: api.PolicyID{Namespace: "lab", Name: "web"}, Rule: api.IsolationRule}}}
	txn := l.r.NewTxn(true)
	txn.Render(labPod, podWith(renderer.NewRuleList([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), {}}, origins)))
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := tcpFlow(friend4, own4, 4000, 81)
	sent := 0
	began := time.Now()
	got := l.told(xdp.Telling{PerSecond: limit}, limit, func() {
		for range packets {
			sent++
			l.want(false, "another port", compile.ToPod, xdp.Frame(f, false))
		}
	})
	more := l.told(xdp.Telling{PerSecond: limit}, 1, func() { l.want(false, "another port", compile.ToPod, xdp.Frame(f, false)) })
	var missed uint64
	for _, e := range more {
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
		if age := time.Since(e.Time); age < -time.Second || age > 2*wires.Patience {
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

// TestAQuietTimeBringsNoFlood: what nobody was told of in it is not told of at once.
func TestAQuietTimeBringsNoFlood(t *testing.T) {
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
	got := l.told(xdp.Telling{PerSecond: limit}, 3, func() {
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
	l := newLab(t)
	l.render(closed, nil)
	sent := 0
	got := l.told(xdp.Telling{PerSecond: 100000, OneIn: 10}, 10, func() {
		for range 1000 {
			sent++
			l.want(false, "a packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		}
	})
	if len(got) > sent/10+1 {
		t.Errorf("%d events for %d packets, want one in ten", len(got), sent)
	}
}

func TestEventsTellOfWhatBeginsWhenThatIsAskedFor(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		l := newLab(t)
		l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
		got := l.told(xdp.Telling{PerSecond: 1000, Permitted: permitted}, 1, func() {
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

func TestNothingIsToldWhenNobodyListens(t *testing.T) {
	l := newLab(t)
	l.render(closed, nil)
	for _, perSecond := range []uint32{10, 0} {
		if err := l.kernel.Tell(xdp.Telling{PerSecond: perSecond}); err != nil {
			t.Fatal(err)
		}
		l.want(false, "a denied packet", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		awaitTick(t)
	}
	if err := l.kernel.Tell(xdp.Telling{PerSecond: 10}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	_ = l.kernel.Events(ctx, func(e xdp.Event) { t.Errorf("%+v was told of before anybody listened", e) })
}

func TestEventsKnowTheRulesOfTheListsThatThePodHadThen(t *testing.T) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), permitTCP(api.AddrNet(friend4), 82, compile.ToPod)}, nil)
	got := l.told(xdp.Telling{PerSecond: 1000}, 1, func() {
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
