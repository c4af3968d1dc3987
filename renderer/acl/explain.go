package acl

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Explain returns the decisions of the tables that the first packet of a flow
// meets. It evaluates the tables that were installed by the last Commit without
// an error. ICMP errors and neighbour discovery pass whatever the tables say.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return renderer.Signed(r.Name(), r.cache.Evaluate(f))
}

// Source says where an entry of an ACL comes from.
type Source struct {
	Table   string         `json:"table"` // the name of the table, or of a constant ACL
	Rule    int            `json:"rule"`  // index in the table, -1 for constant ACLs
	Match   api.ContivRule `json:"match,omitzero"`
	Origins []api.Origin   `json:"origins,omitempty"` // of all rules that the entry stands for
}

// Source maps a rule of an ACL of ours, as a packet trace names it, to the rule of
// policy that it stems from. It is false for ACLs and rules that are not known.
func (r *Renderer) Source(aclIndex, rule uint32) (Source, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.slots {
		n := slices.Index(s.indexes, aclIndex)
		if n < 0 || n >= len(s.want) {
			continue
		}
		p := s.want[n]
		switch {
		case int(rule) >= p.count:
			return Source{}, false
		case p.rules == nil:
			return Source{Table: s.name, Rule: -1}, true
		}
		t := r.tableOf(s)
		if i := int(p.rules[rule]); t != nil && i < len(t.Rules) {
			return Source{Table: t.Name(), Rule: i, Match: t.Rules[i], Origins: originsOf(t.Origins, sharing(t, rulesIn(r.slotsOf(t))), i)}, true
		}
	}
	return Source{}, false
}

// tableOf returns the installed table that a slot holds, or a part of.
func (r *Renderer) tableOf(s *slot) *cache.Table {
	if s.isLocal() {
		return r.cache.InstalledTable(s.table)
	}
	return r.cache.Installed().Global
}

// Dump is what the renderer knows of the vswitch, for people.
type Dump struct {
	Version    string          `json:"version,omitempty"` // of the vswitch
	Connected  bool            `json:"connected"`
	Error      string          `json:"error,omitempty"`   // of the last Commit
	Pending    []string        `json:"pending,omitempty"` // who has no interface
	Held       []string        `json:"held,omitempty"`    // interfaces that are closed, because their pods are not known
	Memory     DumpMemory      `json:"memory,omitzero"`
	Tables     []DumpTable     `json:"tables,omitempty"` // local ones by name, then the global one
	ACLs       []DumpACL       `json:"acls,omitempty"`   // ours, by index
	Interfaces []DumpInterface `json:"interfaces,omitempty"`
}

// DumpMemory is what ACLs take of the vswitch's memory, in bytes.
type DumpMemory struct {
	Needed uint64 `json:"needed"`           // for everything that the last Commit wanted; an estimate
	Budget uint64 `json:"budget,omitempty"` // 0: unlimited, or nobody had to ask
}

// DumpTable is an installed table.
type DumpTable struct {
	Name    string           `json:"name"`
	Pods    []api.PodID      `json:"pods,omitempty"`
	Rules   []api.ContivRule `json:"rules"`
	Origins [][]api.Origin   `json:"origins,omitempty"` // by rule
	Entries int              `json:"entries"`           // of its ACLs
	ACLs    []uint32         `json:"acls"`              // indexes
	Hits    []uint64         `json:"hits,omitempty"`    // by rule: first packets of flows that it decided; nil: not counted, or not asked for

	// CountedWith names by rule the rule whose hits include its own: itself, a rule
	// before it that it shares entries with, or -1 for a rule that can never match.
	// Nil without Hits.
	CountedWith []int `json:"countedWith,omitempty"`
}

// DumpACL is an ACL of ours.
type DumpACL struct {
	Index   uint32 `json:"index"`
	Tag     string `json:"tag"`
	Entries int    `json:"entries"`
}

// DumpInterface is an interface with ACLs.
type DumpInterface struct {
	SwIfIndex uint32   `json:"swIfIndex"`
	Name      string   `json:"name"`
	Tag       string   `json:"tag,omitempty"`
	Input     []uint32 `json:"input,omitempty"`
	Output    []uint32 `json:"output,omitempty"`
}

// Dump returns what is known to be installed. It calls nothing; after an error,
// ACLs and interfaces are unknown until the next Commit.
func (r *Renderer) Dump() Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dump(nil)
}

// DumpHits is Dump with the hits of rules, for which it reads all counters.
func (r *Renderer) DumpHits() Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dump(&r.tally)
}

// dump returns the tables, with the hits that a tally gives unless it is nil.
func (r *Renderer) dump(y *tally) Dump {
	out := Dump{Version: r.version, Memory: DumpMemory{r.heap.needed, r.heap.budget}, Pending: slices.Clone(r.pending), Held: slices.Clone(r.held), Connected: r.link.Connected()}
	if r.lastErr != nil {
		out.Error = r.lastErr.Error()
	}
	l := r.cache.Installed()
	for _, t := range l.Tables {
		out.Tables = append(out.Tables, dumpTable(t, y, r.slotsOf(t)))
	}
	if l.Global != nil {
		out.Tables = append(out.Tables, dumpTable(l.Global, y, r.slotsOf(l.Global)))
	}
	if r.mirror != nil {
		r.mirror.dump(&out)
	}
	return out
}

// slotsOf returns the slots that hold an installed table.
func (r *Renderer) slotsOf(t *cache.Table) []*slot {
	if t.Parts == nil {
		return present(r.local[t.Digest])
	}
	all := present(r.slots[youngSlot])
	for i := range parts {
		all = append(all, present(r.slots[partOf(i)])...)
	}
	return append(all, present(r.slots[finalSlot])...)
}

func present(s *slot) []*slot {
	if s == nil {
		return nil
	}
	return []*slot{s}
}

func dumpTable(t *cache.Table, y *tally, slots []*slot) DumpTable {
	d := DumpTable{Name: t.Name(), Pods: t.Pods, Rules: t.Rules, Origins: t.Origins}
	if y != nil {
		if d.Hits = y.hitsOf(t, slots); d.Hits != nil {
			d.CountedWith = sharing(t, rulesIn(slots))
		}
	}
	for _, s := range slots {
		d.ACLs = append(d.ACLs, s.indexes...)
		for _, p := range s.want {
			d.Entries += p.count
		}
	}
	return d
}

func (m *mirror) dump(out *Dump) {
	for _, h := range m.acls {
		out.ACLs = append(out.ACLs, DumpACL{Index: h.index, Tag: h.tag, Entries: h.piece.count})
	}
	slices.SortFunc(out.ACLs, func(a, b DumpACL) int { return cmp.Compare(a.Index, b.Index) })
	for _, n := range m.ifs {
		if len(n.bound.in)+len(n.bound.out) > 0 {
			out.Interfaces = append(out.Interfaces, DumpInterface{SwIfIndex: n.index, Name: n.name, Tag: n.tag,
				Input: slices.Clone(n.bound.in), Output: slices.Clone(n.bound.out)})
		}
	}
}
