package neverfewer

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// The ends of a flow, each a side of a pod, if it is one.
const (
	source = iota
	destination
	bothEnds
)

var endNames = [bothEnds]string{source: "what %s may send", destination: "what %s may receive"}

// opinion is what one end of a flow says in one state.
type opinion struct {
	pod     api.PodID // zero: the end is no pod of this node, and lets everything pass
	several bool      // pods have the address, as while it moves
	permits bool
}

// view is the opinion of every end of every flow in one state.
type view [][bothEnds]opinion

// must is what the law demands of one end of a flow.
type must uint8

const (
	mayDo must = iota // nothing: the states differ, or the end is not the same pod in all
	mustPass
	mustNotPass
)

// demand returns what some states demand of an end together.
func demand(states []view, flow, end int) must {
	first := states[0][flow][end]
	for _, s := range states {
		if s[flow][end] != first || first.several {
			return mayDo
		}
	}
	if first.permits {
		return mustPass
	}
	return mustNotPass
}

// violation is what broke the law first.
type violation struct {
	step  int // of the case
	call  string
	text  string
	where string // of which layer the mistake is
}

func (v *violation) Error() string {
	return fmt.Sprintf("step %d, after %s: %s: %s", v.step, v.call, v.where, v.text)
}

// The layers that can break the law.
const (
	ofEngine   = "the engine"
	ofRenderer = "the renderer"
)

// counts are what was examined.
type counts struct {
	looks, commits, failures, restarts int
	stops                              int // of renderers, while further states came
	passes, drops                      int // demands that were met
}

func (c *counts) add(o counts) {
	c.looks += o.looks
	c.commits += o.commits
	c.failures += o.failures
	c.restarts += o.restarts
	c.stops += o.stops
	c.passes += o.passes
	c.drops += o.drops
}

// law stands between the engine and a renderer. It is the renderer that the engine knows.
type law struct {
	renderer.Renderer
	subject *subject
	flows   []api.Flow
	stop    chan struct{} // gets a token when the renderer stands still
	goOn    chan struct{} // ends that

	mu     sync.Mutex // of what follows: a plugin commits in another goroutine than the one that plays
	counts counts
	step   int
	calls  int // of the Apply, so far
	stopAt int // the call after which the renderer stands still; 0: none

	model    *renderertest.Recorder // what the renderer received
	owners   map[netip.Addr][]api.PodID
	received []view // since an Apply last succeeded, the state of then first
	demands  [][bothEnds]must
	narrow   []bool // flows that the dataplane may deny although they are permitted
	unasked  bool   // since there are new states, the dataplane was not asked for these
	states   []view // of the cluster, by the oracle, since all was enforced, the one of then first
	broken   *violation
}

func newLaw(s *subject, flows []api.Flow) *law {
	l := &law{
		Renderer: s.renderer(), subject: s, flows: flows, model: renderertest.NewRecorder("model", nil), narrow: make([]bool, len(flows)),
		stop: make(chan struct{}, 1), goOn: make(chan struct{}),
	}
	l.received = []view{l.view()}
	l.compute()
	return l
}

// view evaluates what the renderer received.
func (l *law) view() view {
	l.owners = map[netip.Addr][]api.PodID{}
	for pod, cfg := range l.model.Pods() {
		for _, a := range cfg.IPs {
			l.owners[a] = append(l.owners[a], pod)
		}
	}
	out := make(view, len(l.flows))
	for i, f := range l.flows {
		src, dst := l.owners[f.Src], l.owners[f.Dst]
		if len(src) > 0 && len(dst) > 0 && src[0] == dst[0] {
			out[i] = [bothEnds]opinion{{several: true}, {several: true}} // inside a pod
			continue
		}
		ends := l.model.Ends(f)
		for end, pods := range [bothEnds][]api.PodID{src, dst} {
			o := opinion{permits: [bothEnds]api.Action{ends.Src, ends.Dst}[end] == api.Permit, several: len(pods) > 1}
			if len(pods) == 1 {
				o.pod = pods[0]
			}
			out[i][end] = o
		}
	}
	return out
}

// compute finds out what is demanded now.
func (l *law) compute() {
	l.demands = make([][bothEnds]must, len(l.flows))
	for i := range l.flows {
		for end := range bothEnds {
			l.demands[i][end] = demand(l.received, i, end)
		}
	}
}

// breaks records the first violation.
func (l *law) breaks(where, call, format string, args ...any) {
	if l.broken == nil {
		l.broken = &violation{l.step, call, fmt.Sprintf(format, args...), where}
	}
}

// closeCalls is how many calls of one Apply are all looked at. Of later ones it is fewer and fewer.
const closeCalls = 64

// called looks after a call to the dataplane, and lets the renderer stand still if it is to. Calls by
// which packets meet other rules at once are always looked at.
func (l *law) called(call string, always bool) {
	l.mu.Lock()
	l.calls++
	if always || l.calls < closeCalls || l.calls%(l.calls/closeCalls*2) == 0 {
		l.look(call)
	}
	stands := l.stopAt > 0 && l.calls == l.stopAt
	if stands {
		l.stopAt = 0
		l.counts.stops++
	}
	l.mu.Unlock()
	if stands {
		l.stop <- struct{}{}
		<-l.goOn
	}
}

// look compares what the dataplane does with what the law demands. It is called with the lock.
func (l *law) look(call string) {
	if l.broken != nil {
		return
	}
	l.counts.looks++
	if l.unasked { // the dataplane has heard of the changes by now
		l.narrowed()
	}
	for i, f := range l.flows {
		if l.subject.side != nil {
			l.lookAtSides(call, i, f)
		} else {
			l.lookAtPair(call, i, f)
		}
	}
}

func (l *law) lookAtSides(call string, i int, f api.Flow) {
	for end, d := range l.demands[i] {
		pod := l.received[0][i][end].pod
		if d == mayDo || pod == (api.PodID{}) {
			continue
		}
		l.met(call, i, d, l.subject.side(pod, end, f), fmt.Sprintf(endNames[end], pod))
	}
}

func (l *law) lookAtPair(call string, i int, f api.Flow) {
	d := mayDo
	switch src, dst := l.demands[i][source], l.demands[i][destination]; {
	case src == mustNotPass || dst == mustNotPass:
		d = mustNotPass
	case src == mustPass && dst == mustPass:
		d = mustPass
	}
	if d != mayDo {
		l.met(call, i, d, l.subject.pair(f, l.podsAt), "the flow")
	}
}

// podsAt returns the pods with an address in what the renderer received last.
func (l *law) podsAt(a netip.Addr) []api.PodID { return l.owners[a] }

// met compares a verdict with a demand.
func (l *law) met(call string, i int, d must, passes bool, what string) {
	switch {
	case d == mustPass && !passes && !l.narrow[i]:
		l.breaks(ofRenderer, call, "%s: %s is dropped, which the old and the new list permit\n%s", what, l.flows[i], l.explain(i))
	case d == mustNotPass && passes:
		l.breaks(ofRenderer, call, "%s: %s passes, which neither the old nor the new list permits\n%s", what, l.flows[i], l.explain(i))
	case passes:
		l.counts.passes++
	default:
		l.counts.drops++
	}
}

// explain says what the states of a flow are.
func (l *law) explain(i int) string {
	var b strings.Builder
	for n, v := range l.received {
		fmt.Fprintf(&b, "  state %d of %d: the source (%s) permits it: %t, the destination (%s): %t\n", n, len(l.received),
			v[i][source].pod, v[i][source].permits, v[i][destination].pod, v[i][destination].permits)
	}
	for _, d := range l.model.Explain(l.flows[i]) {
		fmt.Fprintf(&b, "  now: %s, rule %d, %s: %s\n", d.Table, d.Rule, d.Match, d.Action)
	}
	return b.String()
}

// Unwrap gives the engine what else the renderer can do.
func (l *law) Unwrap() renderer.Renderer { return l.Renderer }

// Apply lets the model have what the renderer gets.
func (l *law) Apply(ctx context.Context, c renderer.Changes) error {
	l.begin(ctx, c)
	err := l.Renderer.Apply(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.received = l.received[len(l.received)-1:]
		l.compute()
		clear(l.narrow)
		l.narrowed()
	}
	l.look(fmt.Sprintf("an Apply (%v)", err))
	return err
}

func (l *law) begin(ctx context.Context, c renderer.Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = 0
	l.counts.commits++
	if err := l.model.Apply(ctx, c); err != nil && ctx.Err() == nil {
		l.breaks(ofEngine, "changes", "%v", err)
	}
	if !c.Empty() {
		l.receive()
	}
}

// receive takes the state that the renderer now has to enforce.
func (l *law) receive() {
	if v := l.model.Violations(); len(v) > 0 {
		l.breaks(ofEngine, "changes", "the contract is violated: %s", strings.Join(v, "; "))
	}
	now := l.view()
	l.received = append(l.received, now)
	l.compute()
	l.unasked = true
	l.compareWithStates(now, "changes")
}

// narrowed adds the flows that the dataplane may deny now.
func (l *law) narrowed() {
	if l.unasked = false; l.subject.narrows == nil {
		return
	}
	for i, f := range l.flows {
		l.narrow[i] = l.narrow[i] || l.subject.narrows(f)
	}
}

// compareWithStates compares what the renderer received with the states of the cluster that it may
// be of. Sides of pods may be of different ones.
func (l *law) compareWithStates(now view, call string) {
	if len(l.states) == 0 || l.broken != nil {
		return
	}
	for i, f := range l.flows {
		for end, is := range now[i] {
			if is.several || is.pod == (api.PodID{}) {
				continue
			}
			if d := demand(l.states, i, end); l.states[0][i][end].pod == is.pod && (d == mustPass && !is.permits || d == mustNotPass && is.permits) {
				l.breaks(ofEngine, call, "%s: the list that the renderer receives permits %s: %t, which is wrong in every state of the cluster since the last one that was enforced\n%s\n%s",
					fmt.Sprintf(endNames[end], is.pod), f, is.permits, l.explain(i), l.model.Dump())
			}
		}
	}
}

// specified evaluates a state of the cluster.
func specified(o *oracle.Oracle, flows []api.Flow) view {
	out := make(view, len(flows))
	for i, f := range flows {
		v := o.Decide(oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst), f.Protocol, f.DstPort)
		for end, d := range [bothEnds]oracle.DirectionVerdict{v.Egress, v.Ingress} {
			pods := o.PodsAt([bothEnds]netip.Addr{f.Src, f.Dst}[end])
			out[i][end] = opinion{permits: d.Allowed, several: len(pods) > 1}
			if len(pods) == 1 && d.Applies {
				out[i][end].pod = pods[0]
			}
		}
	}
	return out
}
