package xdp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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

// decision puts a verdict of the memory that is in force in words.
func (r *Renderer) decision(s side, v uint32) renderer.Decision {
	if !r.started && !r.adopted { // the image is what was refused, or failed
		l, rule := r.ledger.ruleOf(s, v&compile.SlotMask, sinceBoot())
		return r.decided(s, v, l, rule)
	}
	l, rule, _, ok := r.image.Rule(v & compile.SlotMask)
	if !ok {
		return r.decided(s, v, nil, -1)
	}
	if own := r.ends[s.id].List(s.dir); own.Digest() == l.Digest() {
		l = own // of equal lists each pod has its own origins
	}
	return r.decided(s, v, l, rule)
}

// decided puts in words that a rule of a list decided, or that none did.
func (r *Renderer) decided(s side, v uint32, l *renderer.RuleList, rule int) renderer.Decision {
	table := "egress of " // the vswitch's view
	if s.dir == compile.FromPod {
		table = "ingress of "
	}
	d := renderer.Decision{Renderer: r.Name(), Table: table + r.owner[s.id].String(), Rule: -1}
	if v&compile.Allow != 0 {
		d.Action = api.Permit
	}
	if l != nil {
		d.Rule, d.Match, d.Origins = rule, l.Rules()[rule], l.Origins(rule)
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
func (r *Renderer) Dump() Dump { return r.dump(false) }

// DumpHits is Dump with the packets that each rule decided since its list is there. It reads all
// counters. Where nobody counts it is Dump.
func (r *Renderer) DumpHits() Dump {
	r.mu.Lock()
	counted := r.readHits()
	r.mu.Unlock()
	return r.dump(counted)
}

// Hits returns the packets that rules of policies decided. It grows while the memory in force is
// pinned, whatever lists are replaced; of lists that are replaced while nobody runs, nothing is
// known. A rule with several origins counts for each of them. It reads all counters; it is nil
// when they cannot be read.
func (r *Renderer) Hits() map[renderer.Decided]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.readHits() {
		return nil
	}
	return maps.Clone(r.ledger.total)
}

// readHits enters all counters.
func (r *Renderer) readHits() bool {
	if !r.started && !r.adopted {
		return false
	}
	counters, err := r.options.Plane.Hits(0, math.MaxUint32)
	if err != nil {
		r.log.Warn("hits of rules are not known", "error", err)
		return false
	}
	r.ledger.enterAll(counters)
	return true
}

func (r *Renderer) dump(counted bool) Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := Dump{Pending: slices.Clone(r.pending), Use: r.image.Use()}
	if r.lastErr != nil {
		d.Error = r.lastErr.Error()
	}
	for _, id := range slices.Sorted(maps.Keys(r.ends)) {
		e := r.ends[id]
		out := DumpEndpoint{Interface: e.ID, Pod: r.owner[e.ID], IPs: e.IPs}
		for _, dir := range []compile.Direction{compile.FromPod, compile.ToPod} {
			if l := e.List(dir); l != nil {
				out.Tables = append(out.Tables, r.dumpTable(side{id, dir}, l, counted))
			}
		}
		d.Endpoints = append(d.Endpoints, out)
	}
	return d
}

func (r *Renderer) dumpTable(s side, l *renderer.RuleList, counted bool) DumpTable {
	t := DumpTable{Name: "ingress", Rules: l.Rules()}
	if s.dir == compile.ToPod {
		t.Name = "egress"
	}
	for i := range l.Rules() {
		t.Origins = append(t.Origins, l.Origins(i))
	}
	if counted {
		_, slots := r.options.Plane.Size()
		t.Hits = r.ledger.hitsOf(s, l, slots)
	}
	return t
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
