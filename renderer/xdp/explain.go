package xdp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// view is what readers see: the outcome of the last Commit. It does not change.
type view struct {
	err        error
	pending    []renderer.Pending
	unenforced []renderer.Unenforced
	lines      int // of the memory
	drift      map[string]uint64
	foreign    []renderer.Foreign
	installed
}

// installed is what a Commit without an error has installed last.
type installed struct {
	ends  map[uint32]compile.Endpoint
	owner map[uint32]api.PodID
}

// publish makes the outcome of a Commit visible, and returns its error with what was tried.
func (r *Renderer) publish(err error) error {
	if err != nil {
		err = fmt.Errorf("install in the kernel: %w", err)
	}
	r.view.Store(&view{err: err, pending: r.pending, unenforced: r.refused, lines: r.image.Use().Lines, drift: maps.Clone(r.drift), foreign: r.foreign, installed: r.acked})
	return err
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.view.Load().unenforced }

// side is one end of a flow at an endpoint.
type side struct {
	id  uint32
	dir compile.Direction
}

// memory returns what is in force, and where an endpoint's record is in it.
func (r *Renderer) memory() (compile.Reader, func(id uint32) uint32) {
	if r.adopted {
		return compile.Reader{Word: r.image.Words()}, r.image.Record
	}
	return compile.Reader{Word: r.options.Plane.Word}, r.options.Plane.Record
}

// sides returns the endpoints that a flow meets, the sender's first. Traffic of a pod to
// itself meets none.
func (r *Renderer) sides(f api.Flow) (out []side) {
	read, record := r.memory()
	visit := func(id uint32) {
		line := record(id)
		if line == 0 {
			return
		}
		switch src, dst := read.Has(line, f.Src), read.Has(line, f.Dst); {
		case src && !dst:
			out = append(out, side{id, compile.FromPod})
		case dst && !src:
			out = append(out, side{id, compile.ToPod})
		}
	}
	if r.started || r.adopted {
		for id := range r.attached {
			visit(id)
		}
	} else if ids, err := r.options.Plane.Attached(); err == nil { // of a process before
		for _, id := range ids {
			visit(id)
		}
	}
	slices.SortFunc(out, func(a, b side) int { return cmp.Or(cmp.Compare(b.dir, a.dir), cmp.Compare(a.id, b.id)) })
	return out
}

// Has says whether the address is that of a pod with an interface here.
func (r *Renderer) Has(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ends {
		if slices.Contains(e.IPs, a) {
			return true
		}
	}
	return false
}

// Verdict says what the plane does with the first packet of a flow.
func (r *Renderer) Verdict(f api.Flow) (api.Action, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sides(f) {
		ok, err := r.options.Plane.Permits(s.id, s.dir, f)
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
	r.told.mu.RLock()
	defer r.told.mu.RUnlock()
	v := r.view.Load()
	for id, e := range v.ends {
		src, dst := slices.Contains(e.IPs, f.Src), slices.Contains(e.IPs, f.Dst)
		if src == dst {
			continue
		}
		s := side{id, compile.ToPod}
		if src {
			s.dir = compile.FromPod
		}
		if l := e.List(s.dir); l != nil {
			rule := slices.IndexFunc(l.Rules(), func(c api.ContivRule) bool { return c.Matches(f, r.told.wasIn) })
			out = append(out, decision(v.owner[id], s, l, rule))
		}
	}
	slices.SortFunc(out, func(a, b renderer.Decision) int { return strings.Compare(a.Table, b.Table) }) // egress first
	return renderer.Signed(r.Name(), out)
}

// tableName names the rules of one direction of a pod, as the pod sees it.
func tableName(pod api.PodID, dir compile.Direction) string {
	if dir == compile.FromPod {
		return "egress of " + pod.String()
	}
	return "ingress of " + pod.String()
}

// decision says that a rule of a list decided, or that none did.
func decision(pod api.PodID, s side, l *renderer.RuleList, rule int) renderer.Decision {
	d := renderer.Decision{Table: tableName(pod, s.dir), Rule: rule}
	if rule >= 0 {
		d.Match, d.Origins = l.Rules()[rule], l.Origins(rule)
		d.Action = d.Match.Action
	}
	return d
}

// State implements renderer.Inspector. Connected says whether the last Commit worked.
func (r *Renderer) State() *renderer.State {
	return r.state(r.view.Load(), func(side, *renderer.RuleList) []uint64 { return nil })
}

// Counters implements renderer.Counter: the packets that each rule decided since its list is
// there, of all pods with these rules. Tables and counters are of one moment.
func (r *Renderer) Counters() *renderer.State {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	v := r.view.Load()
	if !r.readHits(v) {
		return r.State()
	}
	_, slots := r.options.Plane.Size()
	return r.state(v, func(s side, l *renderer.RuleList) []uint64 { return r.ledger.hitsOf(s, l, slots) })
}

// Decisions implements renderer.Counter: packets. It grows while the memory in force is pinned,
// whatever lists are replaced; of lists that are replaced while nobody runs, nothing is known.
func (r *Renderer) Decisions() map[renderer.Decided]uint64 {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	if !r.readHits(r.view.Load()) {
		return nil
	}
	return maps.Clone(r.ledger.total)
}

// readHits enters all counters; the ledger is locked.
func (r *Renderer) readHits(v *view) bool {
	if v.ends == nil {
		return false
	}
	counters, err := r.options.Plane.Hits(0, math.MaxUint32)
	if err != nil {
		r.log.Warn("packet counters of rules cannot be read", "error", err)
		return false
	}
	r.ledger.enterAll(counters)
	return true
}

// state describes a view: lists of pods as tables, those that are equal once.
func (r *Renderer) state(v *view, packets func(side, *renderer.RuleList) []uint64) *renderer.State {
	out := &renderer.State{Renderer: r.Name(), Connected: v.err == nil, Err: v.err, Pending: v.pending, Drift: v.drift, Foreign: v.foreign,
		Memory: renderer.Memory{Needed: uint64(v.lines) * bpf.LineBytes, Budget: r.options.PolicyMemory}}
	type key struct {
		dir    compile.Direction
		digest renderer.Digest
	}
	at := map[key]int{}
	for _, id := range slices.Sorted(maps.Keys(v.ends)) {
		e, pod := v.ends[id], v.owner[id]
		for _, dir := range []compile.Direction{compile.FromPod, compile.ToPod} {
			l := e.List(dir)
			if l == nil {
				continue
			}
			i, known := at[key{dir, l.Digest()}]
			if !known {
				i = len(out.Tables)
				at[key{dir, l.Digest()}] = i
				out.Tables = append(out.Tables, tableOf(pod, side{id, dir}, l, packets))
			}
			t := &out.Tables[i]
			t.Objects = append(t.Objects, fmt.Sprintf("interface %d", id))
			if !slices.Contains(t.Pods, pod) {
				t.Pods = append(t.Pods, pod)
			}
		}
	}
	slices.SortFunc(out.Tables, func(a, b renderer.Table) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func tableOf(pod api.PodID, s side, l *renderer.RuleList, packets func(side, *renderer.RuleList) []uint64) renderer.Table {
	t := renderer.Table{Name: tableName(pod, s.dir), Rules: l.Rules(), Entries: len(l.Rules()), Packets: packets(s, l)}
	for i := range l.Rules() {
		t.Origins = append(t.Origins, l.Origins(i))
		if t.Packets != nil {
			t.CountedWith = append(t.CountedWith, i)
		}
	}
	return t
}

// Endpoints returns the interfaces of pods with their lists, as the last Commit without an error
// installed them. The caller must not change them.
func (r *Renderer) Endpoints() map[uint32]compile.Endpoint { return r.view.Load().ends }

// Lines returns how many lines of memory the last Commit wanted.
func (r *Renderer) Lines() int { return r.view.Load().lines }

// Members returns the members of the sets that installed lists name, sorted. It waits for a
// Commit that runs.
func (r *Renderer) Members() map[api.SetID][]netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[api.SetID][]netip.Prefix{}
	for _, e := range r.ends {
		for _, l := range []*renderer.RuleList{e.FromPod, e.ToPod} {
			for _, rule := range l.Rules() {
				for _, id := range []api.SetID{rule.Src.Set, rule.Dst.Set} {
					if _, known := out[id]; id != 0 && !known {
						out[id] = slices.SortedFunc(maps.Keys(r.told.sets[id]), cache.ComparePrefixes)
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
	list, rule := r.ledger.ruleOf(s, e.verdict&compile.SlotMask, e.boot)
	d := decision(v.owner[e.Interface], s, list, rule)
	if d.Renderer = r.Name(); e.Reason == "" {
		d.Action = api.Permit // also when no list decided
	}
	return v.owner[e.Interface], d
}
