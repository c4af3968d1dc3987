package xdp

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.view.Load().unenforced() }

// Has reports whether a pod with an interface on this node has the address.
func (r *Renderer) Has(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.policy.endpoints.lists {
		if slices.Contains(e.IPs, a) {
			return true
		}
	}
	return false
}

// known returns the endpoints that are or may be attached. While the policy map is that of an
// earlier process, these are the endpoints that it attached.
func (r *Renderer) known() []uint32 {
	if r.policy.state != policyUnknown {
		return slices.Collect(maps.Keys(r.attachments.states))
	}
	ids, err := r.options.Dataplane.Attached()
	if err != nil {
		return nil
	}
	return ids
}

// Verdict returns the dataplane's verdict about the first packet of a flow.
func (r *Renderer) Verdict(f api.Flow) (api.Action, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.policy.sides(r.known(), f) {
		ok, err := r.options.Dataplane.Permits(s.id, s.dir, f)
		if err != nil {
			return api.Deny, fmt.Errorf("query flow %s: %w", f, err)
		}
		if !ok {
			return api.Deny, nil
		}
	}
	return api.Permit, nil
}

// Explain returns the decisions of the lists that apply to the first packet of a flow. It uses the
// lists that the last Apply without an error installed, so it does not know what an earlier
// process installed.
func (r *Renderer) Explain(f api.Flow) (out []renderer.Decision) {
	r.desired.mu.RLock()
	defer r.desired.mu.RUnlock()
	v := r.view.Load()
	for id, e := range v.lists {
		src, dst := slices.Contains(e.IPs, f.Src), slices.Contains(e.IPs, f.Dst)
		if src == dst {
			continue
		}
		s := side{id, compile.ToPod}
		if src {
			s.dir = compile.FromPod
		}
		if l := e.List(s.dir); l != nil {
			rule := -1
			for i, c := range l.All() {
				if c.Matches(f, r.desired.wasIn) {
					rule = i
					break
				}
			}
			out = append(out, decision(v.owner[id], s, l, rule))
		}
	}
	slices.SortFunc(out, func(a, b renderer.Decision) int { return strings.Compare(a.Table, b.Table) }) // "egress of" sorts before "ingress of"
	return renderer.WithRenderer(r.Name(), out)
}

// State implements renderer.Inspector. Connected is true if the last Apply succeeded.
func (r *Renderer) State() *renderer.State {
	return r.state(r.view.Load(), func(side, *renderer.RuleList) []uint64 { return nil })
}

// Counters implements renderer.Counter. It counts the packets that each rule has decided since its
// list was installed, for all pods with equal lists together. Tables and counters are read at the
// same moment.
func (r *Renderer) Counters() *renderer.State {
	r.counters.mu.Lock()
	defer r.counters.mu.Unlock()
	v := r.view.Load()
	if !r.readHits(v) {
		return r.State()
	}
	_, slots := r.options.Dataplane.Size()
	return r.state(v, func(s side, l *renderer.RuleList) []uint64 { return r.counters.hitsOf(s, l, slots) })
}

// Decisions implements renderer.Counter. It counts packets. The counts survive the replacement of
// lists, and a restart if the policy map in force is pinned. What the rules of a list decided is
// lost if the list is replaced while no agent runs.
func (r *Renderer) Decisions() map[renderer.CounterKey]uint64 {
	r.counters.mu.Lock()
	defer r.counters.mu.Unlock()
	if !r.readHits(r.view.Load()) {
		return nil
	}
	return maps.Clone(r.counters.total)
}

// readHits reads all counters from the dataplane. The caller holds r.counters.mu.
func (r *Renderer) readHits(v *view) bool {
	if v.lists == nil {
		return false
	}
	counters, err := r.options.Dataplane.Hits(0, math.MaxUint32)
	if err != nil {
		r.log.Warn("packet counters of rules cannot be read", "error", err)
		return false
	}
	r.counters.enterAll(counters)
	return true
}

// state returns a view in the form of renderer.State.
func (r *Renderer) state(v *view, packets func(side, *renderer.RuleList) []uint64) *renderer.State {
	var unenforced []renderer.Unenforced
	if v.unenforced != nil {
		unenforced = v.unenforced()
	}
	return &renderer.State{Capacity: v.capacity(r.options.limits()), Closed: renderer.ClosedIn(unenforced), Renderer: r.Name(), Connected: v.err == nil, Err: v.err, Pending: v.pending, Drift: v.drift, Foreign: v.foreign,
		Memory: renderer.Memory{Needed: uint64(v.lines) * bpf.LineBytes, Budget: r.options.PolicyMemory}, Tables: v.tables(packets)}
}

// Endpoints returns the interfaces of pods with their lists, as the last Apply without an error
// installed them. The caller must not modify the map.
func (r *Renderer) Endpoints() map[uint32]compile.Endpoint { return r.view.Load().lists }

// Lines returns how many lines of the policy map the last Apply needed.
func (r *Renderer) Lines() int { return r.view.Load().lines }

// Members returns the sorted members of the address sets that installed lists name. It waits for a
// running Apply.
func (r *Renderer) Members() map[api.SetID][]netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[api.SetID][]netip.Prefix{}
	for _, e := range r.policy.endpoints.lists {
		for _, l := range []*renderer.RuleList{e.FromPod, e.ToPod} {
			for _, rule := range l.All() {
				for _, id := range []api.SetID{rule.Src.Set, rule.Dst.Set} {
					if _, known := out[id]; id != 0 && !known {
						out[id] = slices.SortedFunc(maps.Keys(r.desired.sets[id]), prefixes.Compare)
					}
				}
			}
		}
	}
	return out
}

// Explained returns the pod of an event and the decision. The decision names the rule if a rule
// decided and the list that the pod had at that time is still known.
func (r *Renderer) Explained(e Event) (api.PodID, renderer.Decision) {
	v, s := r.view.Load(), side{e.Interface, e.Direction}
	list, rule := r.counters.ruleOf(s, e.verdict&compile.SlotMask, e.boot)
	d := decision(v.owner[e.Interface], s, list, rule)
	if d.Renderer = r.Name(); e.Reason == "" {
		d.Action = api.Permit // also if the pod had no list
	}
	return v.owner[e.Interface], d
}
