package xdp_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

var everything = []api.ContivRule{{Action: api.Permit}}

// wentOn is a pod that may send, with a flow of its own that went on so often that this is known.
func wentOn(t *testing.T, toPod []api.ContivRule, f api.Flow) *lab {
	t.Helper()
	l := newLab(t)
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

// TestAFlowThatWentOnLatelyIsNotLookedFor takes its evidence away behind its back, which is not noticed
// before the next unit of time.
func TestAFlowThatWentOnLatelyIsNotLookedFor(t *testing.T) {
	bothFamilies(t, func(t *testing.T, f api.Flow) {
		l := wentOn(t, closed, f)
		noticed := true
		for range 10 { // a unit may end meanwhile
			l.goesOn(f)
			l.forgets(l.kernel.ForgetFlows)
			l.want(true, "it goes on", compile.FromPod, flags(xdp.Frame(f, false), ack))
			if noticed = l.entries() != 0; !noticed {
				break
			}
		}
		if noticed {
			t.Error("the flow is looked for with every packet")
		}
		l.forgets(l.kernel.ForgetLately)
		l.goesOnAnswered(f)
	})
}

// TestATracePermitsNothing has a flow be known to have gone on in the present generation, though its
// list does not permit it any more: as if the trace were another flow's.
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

// TestTheEndOfAFlowThatWentOnLatelyIsNoted has it be reset, and closed from both ends, while it is known
// to have gone on.
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

// TestWhatWentOnBeforeAChangeIsNotedAgain has evidence begin anew while nothing but the number of the
// change tells that a flow went on before it.
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
