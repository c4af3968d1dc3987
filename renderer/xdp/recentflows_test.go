package xdp_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

var everything = []api.ContivRule{{Action: api.Permit}}

// withThreshold sets the flow-cache threshold; -1 uses the recent-flow cache always.
func withThreshold(n int) func(*labOptions) {
	return func(o *labOptions) { o.kernel.FlowCacheThreshold = n }
}

// newRecentLab has a pod with permitted egress, and a flow of it that is in the recent-flow cache.
func newRecentLab(t *testing.T, toPod []api.ContivRule, f api.Flow) *lab {
	t.Helper()
	l := newLab(t, withThreshold(-1))
	l.render(toPod, everything)
	l.continues(f)
	return l
}

func (l *lab) continues(f api.Flow) {
	l.t.Helper()
	l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
	for range 3 {
		l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	}
}

// continuesAnswered sends one more packet of a flow, and checks that its answer passes.
func (l *lab) continuesAnswered(f api.Flow) {
	l.t.Helper()
	l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	l.want(true, "and is answered", compile.ToPod, flags(xdp.Frame(f, true), ack))
}

func (l *lab) forgets(what func() error) {
	l.t.Helper()
	if err := what(); err != nil {
		l.t.Fatal(err)
	}
}

// bothFamilies runs a test with a flow of each.
func bothFamilies(t *testing.T, test func(t *testing.T, f api.Flow)) {
	for name, f := range map[string]api.Flow{"IPv4": tcpFlow(own4, friend4, 4000, 80), "IPv6": tcpFlow(own6, friend6, 4000, 80)} {
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
}

// TestRecentFlowsAreNotLookedUp deletes the connection of a flow. The program does not notice that
// before the next unit of time.
func TestRecentFlowsAreNotLookedUp(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, closed, f)
		if !l.skipsLookUp(f) {
			t.Error("the flow is looked for with every packet")
		}
		l.forgets(l.kernel.ForgetRecentFlows)
		l.continuesAnswered(f)
	})
}

// TestRecentFlowsExpireWithTheirUnit: a flow is looked up again in a later unit of time.
func TestRecentFlowsExpireWithTheirUnit(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, closed, f)
		for began := time.Now(); !l.looksUp(f); {
			if time.Since(began) > wires.Patience {
				t.Fatal("the flow is never looked for again")
			}
		}
	})
}

// skipsLookUp reports whether the program does not notice that the connection of a flow was
// deleted.
func (l *lab) skipsLookUp(f api.Flow) bool {
	l.t.Helper()
	for range 10 { // a unit of time may end meanwhile
		l.continues(f)
		if !l.looksUp(f) {
			return true
		}
	}
	return false
}

// looksUp reports whether the next packet of a flow restores its deleted connection.
func (l *lab) looksUp(f api.Flow) bool {
	l.t.Helper()
	l.forgets(l.kernel.ForgetFlows)
	l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	return l.entries() != 0
}

// TestRecentFlowsAreUsedAboveThreshold has few active flows, then many, and few again.
func TestRecentFlowsAreUsedAboveThreshold(t *testing.T) {
	const many = 4096
	l := newLab(t, withThreshold(many/4))
	l.render(closed, everything)
	few := nthFlow(many)
	l.continues(few)
	if !l.looksUp(few) {
		t.Error("one flow is many")
	}
	for began := time.Now(); ; { // a busy machine may not send many in a second
		for i := range many {
			l.want(true, "a flow goes on", compile.FromPod, flags(xdp.Frame(nthFlow(i), false), ack))
		}
		if l.skipsLookUp(few) {
			break
		}
		if time.Since(began) > wires.Patience {
			t.Fatal("many flows are looked for")
		}
	}
	l.ages(time.Second)
	l.continues(few)
	if !l.looksUp(few) {
		t.Error("few flows are not looked for when they were many a second ago")
	}
}

// ages makes all state of flows older.
func (l *lab) ages(d time.Duration) {
	l.t.Helper()
	l.forgets(func() error { return l.kernel.Age(d) })
}

// TestRecentFlowsCountActiveFlows once more in each unit, not only when they are noted.
func TestRecentFlowsCountActiveFlows(t *testing.T) {
	const many = 2048
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = 4 * many })
	l.render(closed, everything)
	l.open(0, many)
	l.ages(time.Second)
	l.forgets(l.kernel.ForgetRecentFlows) // and nothing is counted yet
	if latest, before := l.counted(); latest+before != 0 {
		t.Fatalf("%d flows are counted", latest+before)
	}
	for i := range many {
		l.want(true, "a flow goes on", compile.FromPod, flags(xdp.Frame(nthFlow(i), false), ack))
	}
	if latest, before := l.counted(); latest+before == 0 {
		t.Error("no flow is counted")
	}
}

// TestRecentFlowsSkipConnectionsThatAreNotNeeded opens the list that needed it.
func TestRecentFlowsSkipConnectionsThatAreNotNeeded(t *testing.T) {
	l := newLab(t)
	l.render(closed, everything)
	f := l.isCounted()
	l.render(everything, everything)
	l.countsOnce(f)
}

// TestRecentFlowsCountFlowOncePerUnit finds a flow that is counted, and sends very many of its
// packets.
func TestRecentFlowsCountFlowOncePerUnit(t *testing.T) {
	for name, toPod := range map[string][]api.ContivRule{"needs evidence": closed, "needs none": everything} {
		for load, threshold := range map[string]int{"few": 0, "many": -1} {
			t.Run(name+" "+load, func(t *testing.T) {
				l := newLab(t, withThreshold(threshold))
				l.render(toPod, everything)
				f := l.isCounted()
				l.forgets(l.kernel.ForgetFlows)
				l.countsOnce(f)
			})
		}
	}
}

// countsOnce sends very many packets of a flow.
func (l *lab) countsOnce(f api.Flow) {
	l.t.Helper()
	l.forgets(l.kernel.ForgetRecentFlows)
	for range 200 {
		l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	}
	if latest, before := l.counted(); latest != 1 || before > 1 {
		l.t.Errorf("counted %d times and %d times in the unit before, want once", latest, before)
	}
}

// isCounted returns a flow that is.
func (l *lab) isCounted() api.Flow {
	l.t.Helper()
	for i := range 1 << 14 {
		l.forgets(l.kernel.ForgetFlows)
		l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(nthFlow(i), false), ack))
		if n, _ := l.counted(); n != 0 {
			return nthFlow(i)
		}
	}
	l.t.Fatal("no flow is counted")
	return api.Flow{}
}

func (l *lab) counted() (latest, before uint32) {
	l.t.Helper()
	latest, before, err := l.kernel.Counted()
	if err != nil {
		l.t.Fatal(err)
	}
	return latest, before
}

// TestRecentFlowsPermitNothing puts a flow into the recent-flow cache of the present generation
// although its list denies it: as if the fingerprint were another flow's.
func TestRecentFlowsPermitNothing(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, closed, f)
		before := l.kernel.Generation()
		l.render(closed, closed)
		l.want(false, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
		l.kernel.SetGeneration(before)
		l.forgets(l.kernel.ForgetFlows) // else what its list said would count
		l.want(false, "it goes on as before", compile.FromPod, flags(xdp.Frame(f, false), ack))
		l.want(false, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
	})
}

// TestRecentFlowsRecordEndOfConnection resets a connection, and closes it from both ends, while
// it is known to have gone on.
func TestRecentFlowsRecordEndOfConnection(t *testing.T) {
	const fin = 0x01
	for name, end := range map[string]struct {
		flags [2]byte // of the flow, and of its answer
		after time.Duration
	}{
		"reset":  {[2]byte{rst, ack}, 12 * time.Second},
		"closed": {[2]byte{fin | ack, fin | ack}, 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bothFamilies(t, func(t *testing.T, f api.Flow) {
				l := newRecentLab(t, closed, f)
				l.want(true, "its end", compile.FromPod, flags(xdp.Frame(f, false), end.flags[0]))
				l.want(true, "the answer", compile.ToPod, flags(xdp.Frame(f, true), end.flags[1]))
				if err := l.kernel.Age(end.after); err != nil {
					t.Fatal(err)
				}
				l.want(false, "an answer later", compile.ToPod, flags(xdp.Frame(f, true), ack))
			})
		})
	}
}

// TestRecentFlowsExpireWithChange tracks a connection again when only the generation shows that
// its last packet came before a change.
func TestRecentFlowsExpireWithChange(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, closed, f)
		l.forgets(l.kernel.ForgetFlows)
		l.render(closed, []api.ContivRule{{Action: api.Permit, Protocol: api.TCP}})
		l.continuesAnswered(f)
	})
}

// TestRecentFlowsTrackNeededConnection closes the list that its answers passed by.
func TestRecentFlowsTrackNeededConnection(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, everything, f)
		l.render(closed, everything)
		l.continuesAnswered(f)
	})
}

// TestRecentFlowsLetNoAnswerPass deletes the connection of a flow whose own direction is in the
// recent-flow cache.
func TestRecentFlowsLetNoAnswerPass(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := newRecentLab(t, closed, f)
		l.forgets(l.kernel.ForgetFlows)
		l.want(false, "an answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
	})
}
