package acl

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Explain returns the decisions of the tables that the first packet of a flow meets. It evaluates
// the tables that the last successful Apply installed. ICMP errors and neighbour discovery always
// pass.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	return renderer.WithRenderer(r.Name(), r.cache.Evaluate(f))
}

// Source is the origin of an ACL entry.
type Source struct {
	Table   string         `json:"table"` // name of the table or of a constant ACL
	Rule    int            `json:"rule"`  // index in the table, -1 for constant ACLs
	Match   api.ContivRule `json:"match,omitzero"`
	Origins []api.Origin   `json:"origins,omitempty"` // of all rules that the entry represents
}

// Source maps a rule of one of our ACLs, as named in a packet trace, to the policy rule that it
// stems from, as of the last Apply. It returns false for unknown ACLs and rules. It does not wait
// for an Apply.
func (r *reader) Source(aclIndex, rule uint32) (Source, bool) {
	s := r.published.Load()
	if name, ok := s.constants[aclIndex]; ok {
		return Source{Table: name, Rule: -1}, true
	}
	for _, p := range slices.Concat(s.tables, s.guards) {
		n := slices.IndexFunc(p.ACLs, func(a counters.ACL) bool { return a.Index == aclIndex })
		if n < 0 {
			continue
		}
		if int(rule) >= len(p.ACLs[n].Rules) {
			return Source{}, false
		}
		if i := int(p.ACLs[n].Rules[rule]); i >= 0 && i < len(p.Of.Rules) {
			origins := renderer.CountedOrigins(p.Of.Origins, expand.CountedWith(p.Of, p.Rules()), i)
			return Source{Table: p.Name(), Rule: i, Match: p.Of.Rules[i], Origins: origins}, true
		}
	}
	return Source{}, false
}

// publish publishes the outcome of an Apply to readers.
func (r *Renderer) publish(err error) {
	s := &snapshot{
		version: r.version, err: err, pending: r.interfaces.pending, blocked: r.interfaces.blocked, memory: renderer.Memory{Needed: r.memory.Heap.Needed, Budget: r.memory.Heap.Budget},
		tables: r.acls.placed(r.cache.InstalledTables()), guards: r.acls.placedGuards(r.cache.Installed().Senders), constants: map[uint32]string{}, unenforced: r.unenforced.Unenforced(), drifts: r.audits.drifts, foreign: r.audits.foreign,
		sessions: r.memory.Sessions.State(), capacity: r.cache.Capacity(), attached: attached{bound: r.interfaces.bound, answered: r.interfaces.answered},
	}
	r.noticeMade(s, r.mirror)
	for name, index := range r.acls.shared {
		s.constants[index] = name
	}
	r.accumulator.Look(slices.Concat(s.tables, s.guards))
	r.published.Store(s)
}

// placed returns installed tables with the ACLs that hold them.
func (a *acls) placed(tables []*cache.Table) []counters.Table {
	of := a.byTable(false)
	out := make([]counters.Table, len(tables))
	for i, t := range tables {
		out[i] = counters.Table{Of: t, ACLs: of[t.Digest]}
	}
	return out
}

// placedGuards returns the installed sender tables with the guards that hold them.
func (a *acls) placedGuards(senders map[api.PodID]*cache.Table) (out []counters.Table) {
	of, seen := a.byTable(true), make(map[renderer.Digest]bool)
	for _, t := range senders {
		if t != nil && !seen[t.Digest] && of[t.Digest] != nil {
			seen[t.Digest] = true
			out = append(out, counters.Table{Of: t, Guards: true, ACLs: of[t.Digest]})
		}
	}
	return out
}

// byTable returns the ACLs of guards, or of other stacks, by table.
func (a *acls) byTable(guards bool) map[renderer.Digest][]counters.ACL {
	out := make(map[renderer.Digest][]counters.ACL)
	for _, at := range a.sorted() {
		s := a.stacks[at]
		if (at.use == guard) != guards || len(s.want) != len(s.acls) {
			continue
		}
		for n, index := range s.acls {
			out[s.table] = append(out[s.table], counters.ACL{Index: index, Rules: s.want[n].Rules, Entries: s.want[n].Count})
		}
	}
	return out
}

// State implements renderer.Inspector.
func (r *reader) State() *renderer.State {
	s, paused := r.published.Load(), time.Duration(r.link.Paused.Load())
	out := &renderer.State{
		Renderer: name, Version: s.version, Connected: r.link.Connected(), Unanswered: r.link.Unanswered(), Err: s.err, Pending: s.pending,
		Blocked: s.blocked, Memory: s.memory, Drift: s.drifts, Foreign: s.foreign, Paused: &paused,
		Sessions: s.sessions, Capacity: s.capacity, Closed: renderer.ClosedIn(s.unenforced),
	}
	for _, p := range s.tables {
		out.Tables = append(out.Tables, p.View())
	}
	return out
}

// Decisions implements renderer.Counter. It counts first packets of flows.
func (r *reader) Decisions() map[renderer.CounterKey]uint64 {
	if !r.accumulator.IsOn() {
		return nil
	}
	return r.accumulator.Read().Decided
}

// Counters implements renderer.Counter.
func (r *reader) Counters() *renderer.State {
	s, out := r.published.Load(), r.State()
	hits := r.accumulator.Read().Hits
	for i, p := range s.tables {
		out.Tables[i] = p.Counted(hits[p.Of.Digest])
	}
	return out
}

// Guarded returns the tables whose denials are counted where their pods send, with these counters:
// the tables of State do not have them. It is empty when the dataplane does not count.
func (r *reader) Guarded() (out []renderer.Table) {
	hits := r.accumulator.Read().Guarded
	for _, p := range r.published.Load().guards {
		if counted := hits[p.Of.Digest]; counted != nil {
			out = append(out, p.Counted(counted))
		}
	}
	return out
}

// Made returns the interfaces that sluice-cni made, as read last. Any goroutine may call it; it
// does not wait for an Apply. OnChange is called when the result changes.
func (r *reader) Made() []vpp.Made { return r.published.Load().made }

// noticeMade stores the interfaces made by sluice-cni in a snapshot, and calls OnChange if they
// have changed: policy may know their pods by the addresses.
func (r *reader) noticeMade(s *snapshot, m *mirror.Mirror) {
	if last := r.published.Load(); last != nil {
		s.made = last.made
	}
	if m == nil {
		return // keep the last known value
	}
	if now := m.Made(); !slices.EqualFunc(now, s.made, mirror.SameMade) {
		s.made = now
		r.link.Prompt()
	}
}

const name = "acl"

// Name returns "acl".
func (r *Renderer) Name() string { return name }

// Unenforced implements renderer.Reporter.
func (r *reader) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }
