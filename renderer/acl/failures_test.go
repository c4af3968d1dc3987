package acl_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestCommitSurvivesFailureOfEveryCall makes random changes. Many of them end
// with a call that is refused, lost, unanswered or half done, or with a lost connection. After each
// change, every packet must meet, at either end, the rules of a state between the last enforced
// state and the desired state. Once a change is enforced, all packets meet its rules. In the end
// the vswitch holds what a new renderer would install, and memory use has not grown.
func TestCommitSurvivesFailureOfEveryCall(t *testing.T) {
	for name, shrink := range map[string]func(*sluiceacl.Renderer){
		"tables of one ACL":       func(*sluiceacl.Renderer) {},
		"tables in many segments": (*sluiceacl.Renderer).Shrink,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFaultyRun(t)
			shrink(w.r)
			w.runChanges(renderertest.Changes(400))
		})
	}
}

// runChanges makes n changes.
func (w *faultyRun) runChanges(n int) {
	t := w.t
	t.Helper()
	w.changes(n / 5)
	heap := renderertest.LiveHeap()
	w.changes(n - n/5)
	w.resync()
	if grown := renderertest.LiveHeap() - heap; grown > 8<<20 {
		t.Errorf("after %d changes the heap has grown by %d KiB", n, grown>>10)
	}
	w.everythingGone()
	for _, a := range w.sw.ACLs() {
		t.Errorf("ACL %d %s with %d rules is left when there are no pods", a.Index, a.Tag, a.Rules)
	}
	for f := range allFaults {
		if w.failed[f] == 0 {
			t.Errorf("no call was %s", f)
		}
	}
	t.Logf("%d changes, failures %v", n, w.failed)
}

// faultyRun is a renderer whose calls fail in random ways.
type faultyRun struct {
	t       *testing.T
	rand    *rand.Rand
	sw      *vswitch.Switch
	faulty  *faulty
	r       *sluiceacl.Renderer
	truth   *renderertest.Recorder
	uplink  uint32
	ports   map[api.PodID]uint32
	pods    map[api.PodID]renderer.PodConfig
	members map[api.SetID]map[netip.Prefix]bool
	failed  map[fault]int
	between []map[api.Flow]renderertest.Ends // the states since the last enforced one, which is included
}

const (
	weatherPods = 6
	weatherSets = 3
	// callTimeout is short because many calls are not answered.
	callTimeout = 20 * time.Millisecond
)

func weatherPod(n int) api.PodID { return api.PodID{Namespace: "w", Name: fmt.Sprint("p", n)} }

func weatherAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func newFaultyRun(t *testing.T) *faultyRun {
	sw := vswitch.New(vswitch.Options{})
	w := &faultyRun{
		t: t, rand: rand.New(rand.NewPCG(1, 2)), sw: sw, faulty: newFaulty(sw), truth: renderertest.NewRecorder("truth", t),
		uplink: sw.AddInterface("uplink0", sluiceacl.UplinkTag), ports: make(map[api.PodID]uint32),
		pods: make(map[api.PodID]renderer.PodConfig), members: make(map[api.SetID]map[netip.Prefix]bool), failed: make(map[fault]int),
	}
	route := func(p netip.Prefix, index uint32) {
		if err := sw.AddRoute(p, index); err != nil {
			t.Fatal(err)
		}
	}
	route(netip.MustParsePrefix("0.0.0.0/0"), w.uplink)
	for n := range weatherPods {
		id := weatherPod(n)
		w.ports[id] = sw.AddInterface(id.String(), sluiceacl.InterfaceTag(id))
		route(netip.PrefixFrom(weatherAddr(n), 32), w.ports[id])
	}
	var err error
	if w.r, err = sluiceacl.New(sluiceacl.Options{Adapter: w.faulty, Timeout: callTimeout}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.r.Close(), sw.Close()); err != nil {
			t.Error(err)
		}
	})
	w.recordDesired()
	return w
}

// changes makes n random changes and waits until the last one is enforced.
func (w *faultyRun) changes(n int) {
	for range n {
		change := w.draw()
		what := fault(w.rand.IntN(int(allFaults)))
		if w.rand.IntN(3) == 0 {
			w.faulty.failNext(1+w.rand.IntN(10), what)
		}
		err := w.apply(w.rand.IntN(20) == 0, change)
		w.faulty.failNext(0, what)
		if err != nil {
			w.failed[what]++
			w.checkBetween()
			continue
		}
		w.enforced()
	}
	w.settle()
}

// settle commits empty transactions until one succeeds.
func (w *faultyRun) settle() {
	const patience = 1000
	for n := 0; ; n++ {
		err := w.apply(false, nothing)
		if err == nil {
			break
		}
		if n == patience {
			w.t.Fatalf("nothing fails any more, but the Apply still does: %v", err)
		}
	}
	w.enforced()
}

// apply applies a change to the renderer and the recorder.
func (w *faultyRun) apply(resync bool, change func(*renderer.Changes)) error {
	c := renderer.Changes{Resync: resync}
	if resync {
		w.everything(&c)
	} else {
		change(&c)
	}
	if err := w.truth.Apply(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.recordDesired()
	return w.r.Apply(w.t.Context(), c)
}

func (w *faultyRun) everything(x *renderer.Changes) {
	for id, cfg := range w.pods {
		x.Render(id, cfg)
	}
	for id, members := range w.members {
		x.UpdateSet(id, slices.SortedFunc(maps.Keys(members), netip.Prefix.Compare), nil)
	}
}

// draw generates and records a change of a pod or of a set.
func (w *faultyRun) draw() func(*renderer.Changes) {
	if w.rand.IntN(2) == 0 {
		return w.drawMembers(api.SetID(1 + w.rand.IntN(weatherSets)))
	}
	n := w.rand.IntN(weatherPods)
	id := weatherPod(n)
	if w.rand.IntN(8) == 0 {
		delete(w.pods, id)
		return func(x *renderer.Changes) { x.Remove(id) }
	}
	cfg := renderer.PodConfig{IPs: []netip.Addr{weatherAddr(n)}, Ingress: w.drawList(true), Egress: w.drawList(false)}
	w.pods[id] = cfg
	return func(x *renderer.Changes) { x.Render(id, cfg) }
}

func (w *faultyRun) drawMembers(id api.SetID) func(*renderer.Changes) {
	if w.members[id] == nil {
		w.members[id] = make(map[netip.Prefix]bool)
	}
	var added, removed []netip.Prefix
	for range 1 + w.rand.IntN(3) {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(w.rand.IntN(2)), byte(1 + w.rand.IntN(8))}), 32)
		if slices.Contains(added, p) || slices.Contains(removed, p) {
			continue
		}
		if w.members[id][p] {
			delete(w.members[id], p)
			removed = append(removed, p)
		} else {
			w.members[id][p] = true
			added = append(added, p)
		}
	}
	return func(x *renderer.Changes) { x.UpdateSet(id, added, removed) }
}

// drawList generates a list that names the peer: the destination for ingress, the source otherwise.
func (w *faultyRun) drawList(ingress bool) *renderer.RuleList {
	if w.rand.IntN(4) == 0 {
		return nil
	}
	var rules []api.ContivRule
	for range w.rand.IntN(4) {
		other := api.SetNet(api.SetID(1 + w.rand.IntN(weatherSets)))
		if w.rand.IntN(4) == 0 {
			other = api.PrefixNet(netip.MustParsePrefix("10.0.1.0/30"))
		}
		r := api.ContivRule{Action: api.Action(w.rand.IntN(2)), Src: other, Protocol: api.TCP, DstPort: api.Port(uint16(80 + w.rand.IntN(2)))}
		if ingress {
			r.Src, r.Dst = r.Dst, r.Src
		}
		rules = append(rules, r)
	}
	return list(rules...)
}

// flows yields all first packets that the test checks.
func (w *faultyRun) flows(yield func(api.Flow) bool) {
	var addrs []netip.Addr
	for n := range weatherPods {
		addrs = append(addrs, weatherAddr(n))
	}
	addrs = append(addrs, addr("10.0.1.2"), addr("10.0.1.7"))
	for _, src := range addrs {
		for _, dst := range addrs {
			for port := range uint16(2) {
				f := api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 40_000, DstPort: 80 + port}
				if src != dst && !yield(f) {
					return
				}
			}
		}
	}
}

// recordDesired records the verdicts of the desired state. With a network plugin, an unknown pod
// has no routes, so its flows do not count.
func (w *faultyRun) recordDesired() {
	state := make(map[api.Flow]renderertest.Ends)
	for f := range w.flows {
		if w.isKnown(f.Src) && w.isKnown(f.Dst) {
			state[f] = w.truth.Ends(f)
		}
	}
	w.between = append(w.between, state)
}

// isKnown reports whether an address belongs to a known pod or to none.
func (w *faultyRun) isKnown(a netip.Addr) bool {
	id, ok := w.podAt(a)
	_, known := w.pods[id]
	return known || !ok
}

// podAt returns the pod whose interface an address is routed to.
func (w *faultyRun) podAt(a netip.Addr) (api.PodID, bool) {
	for n := range weatherPods {
		if weatherAddr(n) == a {
			return weatherPod(n), true
		}
	}
	return api.PodID{}, false
}

// enforced checks that all flows meet the rules of the last state.
func (w *faultyRun) enforced() {
	w.t.Helper()
	w.between = w.between[len(w.between)-1:]
	w.checkBetween()
}

// checkBetween checks that every flow meets, at either end, the rules of one of the states since
// the last enforced one.
func (w *faultyRun) checkBetween() {
	w.t.Helper()
	for f := range w.flows {
		var of []renderertest.Ends
		for _, s := range w.between {
			if e, known := s[f]; known {
				of = append(of, e)
			}
		}
		if len(of) < len(w.between) {
			continue
		}
		possible := renderertest.Possible(of...)
		if got := w.verdict(f); !possible[got] {
			w.t.Fatalf("%s: %s, which none of %d states says\n%s", f, got, len(w.between), w.truth.Dump())
		}
	}
}

func (w *faultyRun) verdict(f api.Flow) api.Action {
	w.sw.ClearSessions()
	in := w.uplink
	if id, ok := w.podAt(f.Src); ok {
		in = w.ports[id]
	}
	return w.sw.Inject(in, vswitch.FlowPacket(f)).Verdict
}

// resync renders the whole state again.
func (w *faultyRun) resync() {
	w.t.Helper()
	if err := w.apply(true, nil); err != nil {
		w.settle() // calls may exceed their timeouts
		return
	}
	w.enforced()
}

// everythingGone removes all pods and sets.
func (w *faultyRun) everythingGone() {
	w.t.Helper()
	clear(w.pods)
	clear(w.members)
	w.resync()
}
