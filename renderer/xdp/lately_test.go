package xdp_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/wires"
)

var everything = []api.ContivRule{{Action: api.Permit}}

// crowdOf has so many flows be many; -1: any.
func crowdOf(n int) func(*labOptions) { return func(o *labOptions) { o.kernel.FlowCacheThreshold = n } }

// wentOn is a pod that may send, with a flow of its own that went on so often that this is known.
func wentOn(t *testing.T, toPod []api.ContivRule, f api.Flow) *lab {
	t.Helper()
	l := newLab(t, crowdOf(-1))
	l.render(toPod, everything)
	l.goesOn(f)
	return l
}

func (l *lab) goesOn(f api.Flow) {
	l.t.Helper()
	l.want(true, "the flow begins", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
	for range 3 {
		l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	}
}

// goesOnAnswered checks that there is evidence of a flow when it went on once more.
func (l *lab) goesOnAnswered(f api.Flow) {
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

// TestAFlowThatWentOnLatelyIsNotLookedFor takes its evidence away behind its back, which is not
// noticed before the next unit of time.
func TestAFlowThatWentOnLatelyIsNotLookedFor(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		if !l.isNotLookedFor(f) {
			t.Error("the flow is looked for with every packet")
		}
		l.forgets(l.kernel.ForgetLately)
		l.goesOnAnswered(f)
	})
}

// TestATraceEndsWithItsUnit: a flow that went on lately is looked for when time has gone by.
func TestATraceEndsWithItsUnit(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		for began := time.Now(); !l.notices(f); {
			if time.Since(began) > wires.Patience {
				t.Fatal("the flow is never looked for again")
			}
		}
	})
}

// isNotLookedFor reports whether it is not noticed that the evidence of a flow is gone.
func (l *lab) isNotLookedFor(f api.Flow) bool {
	l.t.Helper()
	for range 10 { // a unit may end meanwhile
		l.goesOn(f)
		if !l.notices(f) {
			return true
		}
	}
	return false
}

// notices reports whether the next packet of a flow brings back evidence that is gone.
func (l *lab) notices(f api.Flow) bool {
	l.t.Helper()
	l.forgets(l.kernel.ForgetFlows)
	l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
	return l.entries() != 0
}

// TestManyFlowsAreNotLookedFor has few flows go on, many, and few again.
func TestManyFlowsAreNotLookedFor(t *testing.T) {
	const many = 4096
	l := newLab(t, crowdOf(many/4))
	l.render(closed, everything)
	few := nthFlow(many)
	l.goesOn(few)
	if !l.notices(few) {
		t.Error("one flow is many")
	}
	for began := time.Now(); ; { // on a busy machine they are not many in a second
		for i := range many {
			l.want(true, "a flow goes on", compile.FromPod, flags(xdp.Frame(nthFlow(i), false), ack))
		}
		if l.isNotLookedFor(few) {
			break
		}
		if time.Since(began) > wires.Patience {
			t.Fatal("many flows are looked for")
		}
	}
	l.ages(time.Second)
	l.goesOn(few)
	if !l.notices(few) {
		t.Error("few flows are not looked for when they were many a second ago")
	}
}

// ages has all that is known of flows be older.
func (l *lab) ages(d time.Duration) {
	l.t.Helper()
	l.forgets(func() error { return l.kernel.Age(d) })
}

// TestFlowsThatGoOnAreCounted once more in each unit, not only when they are noted.
func TestFlowsThatGoOnAreCounted(t *testing.T) {
	const many = 2048
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = 4 * many })
	l.render(closed, everything)
	l.open(0, many)
	l.ages(time.Second)
	l.forgets(l.kernel.ForgetLately) // and nothing is counted yet
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

// TestEvidenceThatIsLeftIsNotLookedFor opens the list that needed it.
func TestEvidenceThatIsLeftIsNotLookedFor(t *testing.T) {
	l := newLab(t)
	l.render(closed, everything)
	f := l.isCounted()
	l.render(everything, everything)
	l.countsOnce(f)
}

// TestAFlowIsCountedOnceInAUnit finds a flow that is counted, and has it go on very often.
func TestAFlowIsCountedOnceInAUnit(t *testing.T) {
	for name, toPod := range map[string][]api.ContivRule{"needs evidence": closed, "needs none": everything} {
		for crowds, crowd := range map[string]int{"few": 0, "many": -1} {
			t.Run(name+" "+crowds, func(t *testing.T) {
				l := newLab(t, crowdOf(crowd))
				l.render(toPod, everything)
				f := l.isCounted()
				l.forgets(l.kernel.ForgetFlows)
				l.countsOnce(f)
			})
		}
	}
}

// countsOnce has a flow go on very often.
func (l *lab) countsOnce(f api.Flow) {
	l.t.Helper()
	l.forgets(l.kernel.ForgetLately)
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

// TestATracePermitsNothing has a flow be known to have gone on in the present generation, though
// its list does not permit it any more: as if the trace were another flow's.
func TestATracePermitsNothing(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		before := l.kernel.Generation()
		l.render(closed, closed)
		l.want(false, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
		l.kernel.SetGeneration(before)
		l.forgets(l.kernel.ForgetFlows) // else what its list said would count
		l.want(false, "it goes on as before", compile.FromPod, flags(xdp.Frame(f, false), ack))
		l.want(false, "its answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
	})
}

// TestTheEndOfAFlowThatWentOnLatelyIsNoted has it be reset, and closed from both ends, while it is
// known to have gone on.
func TestTheEndOfAFlowThatWentOnLatelyIsNoted(t *testing.T) {
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
				l := wentOn(t, closed, f)
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

// TestWhatWentOnBeforeAChangeIsNotedAgain has evidence begin anew while nothing but the number of
// the change tells that a flow went on before it.
func TestWhatWentOnBeforeAChangeIsNotedAgain(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		l.forgets(l.kernel.ForgetFlows)
		l.render(closed, []api.ContivRule{{Action: api.Permit, Protocol: api.TCP}})
		l.goesOnAnswered(f)
	})
}

// TestAFlowThatNeededNoEvidenceIsNotedWhenItDoes closes the list that its answers passed by.
func TestAFlowThatNeededNoEvidenceIsNotedWhenItDoes(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, everything, f)
		l.render(closed, everything)
		l.goesOnAnswered(f)
	})
}

// TestATraceIsNoEvidence has evidence of a flow be gone, whose own direction went on lately.
func TestATraceIsNoEvidence(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		l.forgets(l.kernel.ForgetFlows)
		l.want(false, "an answer", compile.ToPod, flags(xdp.Frame(f, true), ack))
	})
}
