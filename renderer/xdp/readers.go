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
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.view.Load().unenforced }

// Has reports whether the address is that of a pod with an interface here.
func (r *Renderer) Has(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.policy.ends.lists {
		if slices.Contains(e.IPs, a) {
			return true
		}
	}
	return false
}

// known returns the endpoints that are attached, or may be: while the policy map is that of a
// process before, those that it attached.
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

// Verdict says what the plane does with the first packet of a flow.
func (r *Renderer) Verdict(f api.Flow) (api.Action, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.policy.sides(r.known(), f) {
		ok, err := r.options.Dataplane.Permits(s.id, s.dir, f)
		if err != nil {
			return api.Deny, fmt.Errorf("ask about %s: %w", f, err)
		}
		if !ok {
			return api.Deny, nil
		}
	}
	return api.Permit, nil
}

// Explain returns the decisions of the lists that the first packet of a flow meets, as the last
// Commit without an error installed them. What a process before has installed is not known.
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
			rule := slices.IndexFunc(l.Rules(), func(c api.ContivRule) bool { return c.Matches(f, r.desired.wasIn) })
			out = append(out, decision(v.owner[id], s, l, rule))
		}
	}
	slices.SortFunc(out, func(a, b renderer.Decision) int { return strings.Compare(a.Table, b.Table) }) // egress first
	return renderer.WithRenderer(r.Name(), out)
}

// State implements renderer.Inspector. Connected reports whether the last Commit worked.
func (r *Renderer) State() *renderer.State {
	return r.state(r.view.Load(), func(side, *renderer.RuleList) []uint64 { return nil })
}

// Counters implements renderer.Counter: the packets that each rule decided since its list is
// there, of all pods with these rules. Tables and counters are of one moment.
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

// Decisions implements renderer.Counter: packets. It grows while the memory in force is pinned,
// whatever lists are replaced; of lists that are replaced while nobody runs, nothing is known.
func (r *Renderer) Decisions() map[renderer.CounterKey]uint64 {
	r.counters.mu.Lock()
	defer r.counters.mu.Unlock()
	if !r.readHits(r.view.Load()) {
		return nil
	}
	return maps.Clone(r.counters.total)
}

// readHits enters all counters; the ledger is locked.
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

// state describes a view.
func (r *Renderer) state(v *view, packets func(side, *renderer.RuleList) []uint64) *renderer.State {
	return &renderer.State{Renderer: r.Name(), Connected: v.err == nil, Err: v.err, Pending: v.pending, Drift: v.drift, Foreign: v.foreign,
		Memory: renderer.Memory{Needed: uint64(v.lines) * bpf.LineBytes, Budget: r.options.PolicyMemory}, Tables: v.tables(packets)}
}

// Endpoints returns the interfaces of pods with their lists, as the last Commit without an error
// installed them. The caller must not change them.
func (r *Renderer) Endpoints() map[uint32]compile.Endpoint { return r.view.Load().lists }

// Lines returns how many lines of memory the last Commit wanted.
func (r *Renderer) Lines() int { return r.view.Load().lines }

// Members returns the members of the sets that installed lists name, sorted. It waits for a
// Commit that runs.
func (r *Renderer) Members() map[api.SetID][]netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[api.SetID][]netip.Prefix{}
	for _, e := range r.policy.ends.lists {
		for _, l := range []*renderer.RuleList{e.FromPod, e.ToPod} {
			for _, rule := range l.Rules() {
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

// Explained returns the pod that an event is of, and what decided, with the rule where one did
// and the lists are still known that the pod had then.
func (r *Renderer) Explained(e Event) (api.PodID, renderer.Decision) {
	v, s := r.view.Load(), side{e.Interface, e.Direction}
	list, rule := r.counters.ruleOf(s, e.verdict&compile.SlotMask, e.boot)
	d := decision(v.owner[e.Interface], s, list, rule)
	if d.Renderer = r.Name(); e.Reason == "" {
		d.Action = api.Permit // also when no list decided
	}
	return v.owner[e.Interface], d
}
