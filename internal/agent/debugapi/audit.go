package debugapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain"
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
	a := audits{subjectsOf(s), l.Node.Decisions(), []view.Audited{}}
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
	a.rows = slices.DeleteFunc(a.rows, func(v view.Audited) bool {
		return f.namespace != "" && v.Policy.Namespace != f.namespace && !inNamespace(v.Pods, f.namespace)
	})
	slices.SortFunc(a.rows, compareAudited)
	return a.rows, nil
}

func compareAudited(a, b view.Audited) int {
	return cmp.Or(a.Policy.Compare(b.Policy), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Rule, b.Rule),
		slices.Compare(a.Workloads, b.Workloads), cmp.Compare(a.Renderer, b.Renderer))
}

// subjects are the local pods that policies apply to.
type subjects struct {
	pods   map[api.PodID]policy.Pod
	audits map[api.PolicyID][]api.PodID // of policies in audit mode
}

func subjectsOf(s *policy.Snapshot) subjects {
	out := subjects{map[api.PodID]policy.Pod{}, map[api.PolicyID][]api.PodID{}}
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

// of returns the pods whose traffic in the origin's direction a rule of a table counts: those that
// have the table, unless the table is that of the other end of the flow.
func (x subjects) of(o api.Origin, t renderer.Table, r api.ContivRule) (out []api.PodID) {
	for _, id := range x.audits[o.Policy] {
		_, local := slices.BinarySearchFunc(t.Pods, id, api.PodID.Compare)
		switch source := r.Src.Prefix; {
		case t.IsGlobal():
			local = true
		case o.Direction == api.Egress && source.IsValid():
			local = slices.ContainsFunc(x.pods[id].IPs, source.Contains)
		}
		if local {
			out = append(out, id)
		}
	}
	return out
}

// workloads returns what some pods run, each once.
func (x subjects) workloads(pods []api.PodID) (out []string) {
	for _, id := range pods {
		set := map[string]string{}
		for _, l := range x.pods[id].Labels {
			set[l.Key] = l.Value
		}
		out = append(out, explain.GroupOf(id, set))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// audits collects rows. Rules of one policy, direction and workloads are one row.
type audits struct {
	subjects
	decided map[string]map[renderer.CounterKey]uint64
	rows    []view.Audited
}

// add adds what an audited rule counts, for each policy in audit mode that would deny.
func (a *audits) add(name string, t renderer.Table, i int) {
	for _, o := range t.Origins[i] {
		if _, audited := a.audits[o.Policy]; !o.Audit || !audited {
			continue
		}
		pods := a.of(o, t, t.Rules[i])
		v := view.Audited{Policy: o.Policy, Direction: o.Direction, Rule: o.Rule, Renderer: name, Pods: pods, Workloads: a.workloads(pods)}
		at := slices.IndexFunc(a.rows, func(w view.Audited) bool { return compareAudited(v, w) == 0 })
		if at < 0 {
			at, a.rows = len(a.rows), append(a.rows, v)
		}
		row := &a.rows[at]
		row.Pods = append(row.Pods, pods...)
		slices.SortFunc(row.Pods, api.PodID.Compare)
		row.Pods = slices.Compact(row.Pods)
		if t.Packets == nil {
			continue
		}
		if row.Packets == nil {
			total := a.decided[name][renderer.CounterKey{Origin: o, Action: api.Permit}]
			row.Packets, row.Total = new(uint64), &total
		}
		if with := t.CountedWith[i]; with < 0 || with == i { // else another rule counts it, which is audited as well
			*row.Packets += t.Packets[i]
		}
	}
}
