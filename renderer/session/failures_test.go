package session_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestCommitSurvivesFailureOfEveryCall makes random changes. Many of them end
// with a call that is lost or refused. After each change, every attempt must be decided, at either
// end, as in a state between the last enforced state and the desired state. In the end neither
// rules nor memory may be left.
func TestCommitSurvivesFailureOfEveryCall(t *testing.T) {
	for name, refuses := range map[string]bool{"lost": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			w := newWeather(t, refuses)
			n := renderertest.Changes(300) / 2
			w.changes(n / 5)
			heap := renderertest.LiveHeap()
			w.changes(n - n/5)
			if grown := renderertest.LiveHeap() - heap; grown > 8<<20 {
				t.Errorf("after %d changes the heap has grown by %d KiB", n, grown>>10)
			}
			w.apply(true, func(*renderer.Changes) {})
			if left := w.s.Switch.SessionRules(); len(left) > 0 {
				t.Errorf("%d rules are left when there are no pods, first %s", len(left), left[0])
			}
			if w.failed < n/10 {
				t.Errorf("only %d of %d changes failed", w.failed, n)
			}
			t.Logf("%d changes, %d attempts failed", n, w.failed)
		})
	}
}

// faultyRun is a renderer whose calls fail in random ways.
type faultyRun struct {
	t    *testing.T
	rand *rand.Rand
	s    *backends.Session
	// senders evaluates what pods may send, receivers who may send to them.
	senders, receivers *renderertest.Recorder
	members            map[netip.Prefix]bool
	between            [][]renderertest.Ends // by flow: the states since the last enforced one, which is included
	failed             int
}

const weatherPods = 5

var (
	weatherSet   = api.NewSetID("weather")
	weatherFlows = flowsOfWeather()
)

func weatherAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

// flowsOfWeather returns flows between all pods and an outside address, on three ports.
func flowsOfWeather() (out []api.Flow) {
	for src := range weatherPods + 1 {
		for dst := range weatherPods + 1 {
			for _, port := range []uint16{79, 80, 443} {
				if src != dst {
					out = append(out, api.Flow{Src: weatherAddr(src), Dst: weatherAddr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port})
				}
			}
		}
	}
	return out
}

func newWeather(t *testing.T, refuses bool) *faultyRun {
	w := &faultyRun{t: t, rand: rand.New(rand.NewPCG(1, 2)), s: newStack(t, backends.SessionOptions{Quirks: true, Refuses: refuses}), members: map[netip.Prefix]bool{},
		senders: renderertest.NewRecorder("senders", t), receivers: renderertest.NewRecorder("receivers", t)}
	t.Cleanup(func() {
		if err := w.s.Close(); err != nil {
			t.Error(err)
		}
	})
	w.apply(false, func(txn *renderer.Changes) {
		for n := range weatherPods {
			txn.Render(renderertest.PodIDs[n], renderer.PodConfig{IPs: []netip.Addr{weatherAddr(n)}})
		}
	})
	return w
}

// changes makes n random changes, the last of which must be enforced.
func (w *faultyRun) changes(n int) {
	for range n {
		c := w.record(false, w.draw())
		if w.rand.IntN(3) > 0 {
			w.s.FailNext(1 + w.rand.IntN(12))
		}
		err := w.s.Renderer().Apply(w.t.Context(), c)
		w.s.FailNext(0)
		if err != nil {
			w.failed++
		} else {
			w.enforced()
		}
		w.check()
	}
	w.apply(false, func(*renderer.Changes) {})
}

// apply commits a change that must succeed.
func (w *faultyRun) apply(resync bool, change func(*renderer.Changes)) {
	w.t.Helper()
	if err := w.s.Renderer().Apply(w.t.Context(), w.record(resync, change)); err != nil {
		w.t.Fatal(err)
	}
	w.enforced()
	w.check()
}

// record applies a change to the models, and returns it for the renderer.
func (w *faultyRun) record(resync bool, change func(*renderer.Changes)) renderer.Changes {
	c := renderer.Changes{Resync: resync}
	change(&c)
	for model, half := range map[*renderertest.Recorder]renderertest.Edit{w.senders: renderertest.OpenEgress, w.receivers: openIngress} {
		if err := model.Apply(w.t.Context(), half(c)); err != nil {
			w.t.Fatal(err)
		}
	}
	state := make([]renderertest.Ends, len(weatherFlows))
	for i, f := range weatherFlows {
		state[i] = renderertest.Ends{Src: w.senders.Verdict(f), Dst: w.receivers.Verdict(f)}
	}
	w.between = append(w.between, state)
	return c
}

// openIngress forwards only what may be sent to pods, as OpenEgress does with what they may send.
var openIngress = renderertest.EditPods(func(_ api.PodID, cfg *renderer.PodConfig) bool { cfg.Ingress = nil; return true })

func (w *faultyRun) enforced() { w.between = w.between[len(w.between)-1:] }

// check compares all attempts with the states in which they may be decided.
func (w *faultyRun) check() {
	w.t.Helper()
	for i, f := range weatherFlows {
		of := make([]renderertest.Ends, len(w.between))
		for n, state := range w.between {
			of[n] = state[i]
		}
		possible := renderertest.Possible(of...)
		if got := w.s.Verdict(f); !possible[got] {
			w.t.Fatalf("%s in %d states: %s", f, len(w.between), w.s.Trace(f))
		}
	}
}

// draw returns a random change of one pod, and sometimes of the set.
func (w *faultyRun) draw() func(*renderer.Changes) {
	cfg := renderer.PodConfig{Ingress: w.list(func(r *api.ContivRule) *api.Net { return &r.Dst }), Egress: w.list(func(r *api.ContivRule) *api.Net { return &r.Src })}
	n := w.rand.IntN(weatherPods)
	cfg.IPs = []netip.Addr{weatherAddr(n)}
	var added, removed []netip.Prefix
	if p := netip.PrefixFrom(weatherAddr(w.rand.IntN(weatherPods+1)), 32); w.rand.IntN(2) == 0 {
		if w.members[p] {
			removed = append(removed, p)
			delete(w.members, p)
		} else {
			added = append(added, p)
			w.members[p] = true
		}
	}
	return func(t *renderer.Changes) {
		t.Render(renderertest.PodIDs[n], cfg)
		if len(added)+len(removed) > 0 {
			t.UpdateSet(weatherSet, added, removed)
		}
	}
}

// list generates a list of rules that name one side.
func (w *faultyRun) list(side func(*api.ContivRule) *api.Net) *renderer.RuleList {
	if w.rand.IntN(3) == 0 {
		return nil
	}
	var rules []api.ContivRule
	for range w.rand.IntN(4) {
		r := api.ContivRule{Action: api.Action(w.rand.IntN(2)), Protocol: api.TCP, DstPort: []api.PortRange{api.AnyPort, api.Port(80), api.Ports(79, 80), api.Port(443)}[w.rand.IntN(4)]}
		*side(&r) = []api.Net{{}, api.SetNet(weatherSet), api.PrefixNet(netip.MustParsePrefix("10.0.0.0/30")), api.AddrNet(weatherAddr(w.rand.IntN(weatherPods)))}[w.rand.IntN(4)]
		rules = append(rules, r)
	}
	return list(append(rules, api.ContivRule{Action: api.Action(w.rand.IntN(2))})...)
}
