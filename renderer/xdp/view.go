package xdp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// view is the outcome of the last Apply, as readers see it. It is immutable.
type view struct {
	err        error
	pending    []renderer.Pending
	unenforced func() []renderer.Unenforced
	lines      int // of the policy map
	rows       func() capacity.Use
	addresses  int // that lists name
	drift      attach.Drift
	foreign    []renderer.Foreign
	endpoints  // as the last Apply without an error installed them
}

// tables returns the rule lists of pods as tables. Equal lists share a table.
func (v *view) tables(packets func(side, *renderer.RuleList) []uint64) (out []renderer.Table) {
	type key struct {
		dir    compile.Direction
		digest renderer.Digest
	}
	at := map[key]int{}
	var of []*renderer.RuleList // with the origins for all pods of a table
	for _, id := range slices.Sorted(maps.Keys(v.lists)) {
		e, pod := v.lists[id], v.owner[id]
		for _, dir := range []compile.Direction{compile.FromPod, compile.ToPod} {
			l := e.List(dir)
			if l == nil {
				continue
			}
			i, known := at[key{dir, l.Digest()}]
			if !known {
				i = len(out)
				at[key{dir, l.Digest()}] = i
				out, of = append(out, tableOf(pod, side{id, dir}, l, packets)), append(of, l)
			}
			of[i] = of[i].WithOrigins(l)
			t := &out[i]
			t.Objects = append(t.Objects, fmt.Sprintf("interface %d", id))
			if !slices.Contains(t.Pods, pod) {
				t.Pods = append(t.Pods, pod)
			}
		}
	}
	for i, l := range of {
		for rule := range l.Len() {
			out[i].Origins = append(out[i].Origins, l.Origins(rule))
		}
	}
	slices.SortFunc(out, func(a, b renderer.Table) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func tableOf(pod api.PodID, s side, l *renderer.RuleList, packets func(side, *renderer.RuleList) []uint64) renderer.Table {
	t := renderer.Table{Name: tableName(pod, s.dir), Rules: l.Rules(), Entries: l.Len(), Packets: packets(s, l)}
	if t.Packets != nil {
		for i := range l.Len() {
			t.CountedWith = append(t.CountedWith, i)
		}
	}
	return t
}

// tableName returns the name of the table of one direction of a pod, as the pod sees it.
func tableName(pod api.PodID, dir compile.Direction) string {
	if dir == compile.FromPod {
		return "egress of " + pod.String()
	}
	return "ingress of " + pod.String()
}

// decision returns the decision of a rule of a list. A negative rule means that no rule matched.
func decision(pod api.PodID, s side, l *renderer.RuleList, rule int) renderer.Decision {
	d := renderer.Decision{Table: tableName(pod, s.dir), Rule: rule}
	if rule >= 0 {
		d.Match, d.Origins = l.At(rule), l.Origins(rule)
		d.Action = d.Match.Action
	}
	return d
}

// capacity returns what lists take of the policy memory. How many addresses a namespace names is
// counted only where all together name too many.
func (v *view) capacity(l compile.Limits) []renderer.Capacity {
	var u capacity.Use
	if v.rows != nil {
		u = v.rows()
	}
	return []renderer.Capacity{{
		Resource: "lines of rows", List: renderer.Share{Used: u.List, Most: l.Rows.List}, Of: u.Of,
		Namespace: renderer.Share{Used: u.Namespace, Most: l.Rows.Namespace}, Total: renderer.Share{Used: u.Total, Most: l.Rows.Total},
	}, {
		Resource: "addresses", Namespace: renderer.Share{Most: l.Addresses.Namespace},
		Total: renderer.Share{Used: v.addresses, Most: l.Addresses.Total},
	}}
}
