package debugapi

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// audit returns what policies in audit mode would deny, by policy, rule and workloads.
func (l *Lists) audit(ctx context.Context, f Filter) ([]view.Audited, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	a := newAudits(s)
	for _, state := range l.Node.Counters() {
		for _, t := range state.Tables {
			t.Pods = slices.SortedFunc(slices.Values(t.Pods), api.PodID.Compare)
			for i, r := range t.Rules {
				if r.Audit && i < len(t.Origins) {
					a.add(state.Renderer, t, i)
				}
			}
		}
	}
	decided, rows := l.Node.Decisions(), []view.Audited{}
	for _, v := range a.rows {
		switch {
		case len(v.Pods) == 0: // a rule that it shares with other policies, for pods of those
			continue
		case f.namespace != "" && v.Policy.Namespace != f.namespace && !inNamespace(v.Pods, f.namespace):
			continue
		}
		slices.SortFunc(v.Pods, api.PodID.Compare)
		v.Pods = slices.Compact(v.Pods)
		if v.Packets != nil {
			o := api.Origin{Policy: v.Policy, Direction: v.Direction, Rule: v.Rule, Audit: true}
			total := decided[v.Renderer][renderer.CounterKey{Origin: o, Action: api.Permit}]
			v.Total = &total
		}
		rows = append(rows, *v)
	}
	slices.SortFunc(rows, compareAudited)
	return rows, nil
}

func compareAudited(a, b view.Audited) int {
	return cmp.Or(a.Policy.Compare(b.Policy), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Rule, b.Rule),
		slices.Compare(a.Workloads, b.Workloads), cmp.Compare(a.Renderer, b.Renderer))
}

// audits collects rows. Rules of one policy, direction and workloads are one row.
type audits struct {
	pods   map[api.PodID]policy.Pod
	audits map[api.PolicyID][]api.PodID // of policies in audit mode: the local pods that they select
	rows   map[auditKey]*view.Audited
	known  map[countKey]*view.Audited
}

// auditKey identifies a row.
type auditKey struct {
	origin              api.Origin
	renderer, workloads string
}

// countKey is all of an audited rule that says whose traffic it counts for an origin. Rules of many
// tables have the same.
type countKey struct {
	origin          api.Origin
	renderer, table string
	source          netip.Prefix
}

func newAudits(s *policy.Snapshot) audits {
	out := audits{map[api.PodID]policy.Pod{}, map[api.PolicyID][]api.PodID{}, map[auditKey]*view.Audited{}, map[countKey]*view.Audited{}}
	for _, p := range s.Pods {
		out.pods[p.ID] = p
	}
	for _, p := range s.Policies {
		if p.Audit {
			out.audits[p.ID] = p.Pods
		}
	}
	return out
}

// add adds what an audited rule counts, for each policy in audit mode that would deny.
func (a audits) add(name string, t renderer.Table, i int) {
	for _, o := range t.Origins[i] {
		if _, audited := a.audits[o.Policy]; !o.Audit || !audited {
			continue
		}
		row := a.row(o, name, t, t.Rules[i])
		if t.Packets == nil {
			continue
		}
		if row.Packets == nil {
			row.Packets = new(uint64)
		}
		if with := t.CountedWith[i]; with < 0 || with == i { // else another rule counts it, which is audited as well
			*row.Packets += t.Packets[i]
		}
	}
}

// row returns the row of a rule, with the pods whose traffic it counts: those that have the table,
// unless the table is that of the other end of the flow.
func (a audits) row(o api.Origin, name string, t renderer.Table, r api.ContivRule) *view.Audited {
	key := countKey{origin: o, renderer: name, table: t.Name}
	ofOther := o.Direction == api.Egress && r.Src.Prefix.IsValid() && !t.IsGlobal()
	if ofOther {
		key.table, key.source = "", r.Src.Prefix
	}
	row := a.known[key]
	if row != nil {
		return row
	}
	var pods []api.PodID
	for _, id := range a.audits[o.Policy] {
		_, counted := slices.BinarySearchFunc(t.Pods, id, api.PodID.Compare)
		if ofOther {
			counted = slices.ContainsFunc(a.pods[id].IPs, key.source.Contains)
		}
		if counted || t.IsGlobal() {
			pods = append(pods, id)
		}
	}
	workloads := a.workloads(pods)
	at := auditKey{o, name, strings.Join(workloads, ",")}
	if row = a.rows[at]; row == nil {
		row = &view.Audited{Policy: o.Policy, Direction: o.Direction, Rule: o.Rule, Renderer: name, Workloads: workloads}
		a.rows[at] = row
	}
	row.Pods = append(row.Pods, pods...)
	a.known[key] = row
	return row
}

// workloads returns what some pods run, each once.
func (a audits) workloads(pods []api.PodID) (out []string) {
	for _, id := range pods {
		set := map[string]string{}
		for _, l := range a.pods[id].Labels {
			set[l.Key] = l.Value
		}
		out = append(out, explain.GroupOf(id, set))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
