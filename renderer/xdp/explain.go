package xdp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

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
	for _, id := range r.enforced() {
		line := record(id)
		if line == 0 {
			continue
		}
		own := read.Addresses(line)
		switch src, dst := slices.Contains(own, f.Src), slices.Contains(own, f.Dst); {
		case src && !dst:
			out = append([]side{{id, compile.FromPod}}, out...)
		case dst && !src:
			out = append(out, side{id, compile.ToPod})
		}
	}
	return out
}

// enforced returns the endpoints whose packets are decided, also if this process has not
// taken them over yet.
func (r *Renderer) enforced() []uint32 {
	if !r.started && !r.adopted {
		if ids, err := r.options.Plane.Attached(); err == nil {
			return ids
		}
	}
	return slices.Sorted(maps.Keys(r.attached))
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

// Explain returns the decisions of the lists that the first packet of a flow meets, as they
// are in the memory that is in force.
func (r *Renderer) Explain(f api.Flow) (out []renderer.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read, record := r.memory()
	for _, s := range r.sides(f) {
		line := record(s.id)
		if read.Word(line*compile.LineWords+compile.RecordFlags)&(compile.FlagToPod<<s.dir) != 0 { // else there is no list
			out = append(out, r.decision(s, read.Verdict(line, s.dir, f)))
		}
	}
	return out
}

// decision puts a verdict in words.
func (r *Renderer) decision(s side, v uint32) renderer.Decision {
	table := "egress of " // the vswitch's view
	if s.dir == compile.FromPod {
		table = "ingress of "
	}
	d := renderer.Decision{Renderer: r.Name(), Table: table + r.owner[s.id].String(), Rule: -1}
	if v&compile.Allow != 0 {
		d.Action = api.Permit
	}
	l, rule, _, ok := r.image.Rule(v & compile.SlotMask)
	if !ok {
		return d
	}
	d.Rule, d.Match, d.Origins = rule, l.Rules()[rule], l.Origins(rule)
	if own := r.ends[s.id].List(s.dir); own.Digest() == l.Digest() {
		d.Origins = own.Origins(rule) // of equal lists each pod has its own
	}
	return d
}

// Dump is what is installed, for people.
type Dump struct {
	Error     string         `json:"error,omitempty"`   // of the last Commit
	Pending   []string       `json:"pending,omitempty"` // who has no interface
	Use       compile.Use    `json:"use"`
	Endpoints []DumpEndpoint `json:"endpoints,omitempty"` // by interface
}

// DumpEndpoint is an interface of a pod, and its lists.
type DumpEndpoint struct {
	Interface uint32       `json:"interface"`
	Pod       api.PodID    `json:"pod"`
	IPs       []netip.Addr `json:"ips"`
	Tables    []DumpTable  `json:"tables,omitempty"`
}

// DumpTable is one direction of a pod.
type DumpTable struct {
	Name    string           `json:"name"`
	Rules   []api.ContivRule `json:"rules"`
	Origins [][]api.Origin   `json:"origins,omitempty"` // by rule
	Hits    []uint64         `json:"hits,omitempty"`    // packets by rule, of all pods with these rules
}

// Dump returns what is known to be installed. It asks nobody.
func (r *Renderer) Dump() Dump { return r.dump(nil) }

// DumpHits is Dump with the packets that each rule decided since its list is there, or since
// an agent has started that took it over. Without counters it is Dump.
func (r *Renderer) DumpHits() Dump {
	r.mu.Lock()
	hits, err := r.options.Plane.Hits()
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("hits of rules are not known", "error", err)
	}
	return r.dump(hits)
}

func (r *Renderer) dump(hits []uint64) Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := Dump{Pending: slices.Clone(r.pending), Use: r.image.Use()}
	if r.lastErr != nil {
		d.Error = r.lastErr.Error()
	}
	for _, id := range slices.Sorted(maps.Keys(r.ends)) {
		e := r.ends[id]
		out := DumpEndpoint{Interface: e.ID, Pod: r.owner[e.ID], IPs: e.IPs}
		for _, l := range []*renderer.RuleList{e.FromPod, e.ToPod} {
			if l == nil {
				continue
			}
			t := DumpTable{Name: "ingress", Rules: l.Rules()}
			if l == e.ToPod {
				t.Name = "egress"
			}
			for i := range l.Rules() {
				t.Origins = append(t.Origins, l.Origins(i))
			}
			t.Hits = r.hitsOf(hits, id, l == e.ToPod)
			out.Tables = append(out.Tables, t)
		}
		d.Endpoints = append(d.Endpoints, out)
	}
	return d
}

// hitsOf returns the packets that each rule of an endpoint's list decided, nil when that is
// not known.
func (r *Renderer) hitsOf(hits []uint64, id uint32, toPod bool) []uint64 {
	dir := compile.FromPod
	if toPod {
		dir = compile.ToPod
	}
	first, count, ok := r.image.Slot(id, dir)
	if !ok || r.adopted || int(first)+count > len(hits) {
		return nil
	}
	return hits[first : int(first)+count]
}

// Members returns the members of the sets that installed lists name, sorted.
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
