package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

func podTable(pods []view.Pod, _ bool) *term.Table {
	columns := []string{"POD", "NODE", "ADDRESSES", "STATE", "ISOLATED", "POLICIES", "LABELS"}
	faulty := slices.ContainsFunc(pods, func(p view.Pod) bool { return len(p.Problems) > 0 })
	if faulty { // which is seldom, and then it must not be overlooked
		columns = append(columns, "PROBLEMS")
	}
	t := term.NewTable(columns...).Narrow(16, "ADDRESSES", "POLICIES", "LABELS", "PROBLEMS").Optional("LABELS", "ADDRESSES", "NODE")
	for _, p := range pods {
		var policies []string
		for _, id := range p.Policies {
			policies = append(policies, id.Name)
		}
		row := []any{p.Pod, p.Node, term.Joined(p.Addresses), p.State, dash(term.Joined(p.Isolated)), dash(strings.Join(policies, ",")), labelTexts(p.Labels)}
		if faulty {
			row = append(row, summary(p.Problems))
		}
		t.Row(row...)
	}
	return t
}

// podsOfNodes replaces what one agent knows of pods by what the agents of their nodes say.
func podsOfNodes(ctx context.Context, r *getRun, pods []view.Pod, query string) ([]view.Pod, error) {
	agents, err := r.allAgents(ctx)
	if err != nil {
		return nil, err
	}
	agents = slices.DeleteFunc(agents, func(c *client) bool {
		return !slices.ContainsFunc(pods, func(p view.Pod) bool { return p.Node == c.node })
	})
	if len(r.nodes) > 0 {
		pods = slices.DeleteFunc(pods, func(p view.Pod) bool { return !slices.Contains(r.nodes, p.Node) })
	}
	if len(agents) == 0 {
		return pods, nil
	}
	answers, err := askAll(ctx, r.options, agents, func(ctx context.Context, c *client) (own []view.Pod, err error) {
		err = c.get(ctx, query+"&local=true", &own)
		return slices.DeleteFunc(own, func(p view.Pod) bool { return p.State == "remote" || p.Node != c.node }), err
	})
	said := map[api.PodID]view.Pod{}
	for _, p := range slices.Concat(answers...) {
		said[p.Pod] = p
	}
	for i, p := range pods {
		if s, ok := said[p.Pod]; ok && s.Node == p.Node {
			pods[i] = s
		}
	}
	return pods, err
}

// setTable shows sets by their meaning. Their names say nothing to people.
func setTable(sets []view.Set, wide bool) *term.Table {
	t := term.NewTable("MEANING", "MEMBERS", "ADDRESSES")
	if wide {
		t = term.NewTable("SET", "MEMBERS", "ADDRESSES", "MEANING")
	}
	t.Narrow(44, "MEANING").Narrow(16, "ADDRESSES").Optional("ADDRESSES")
	for _, s := range sets {
		if wide {
			t.Row(s.ID, len(s.Members), term.Some(s.Members, 4), s.Meaning)
		} else {
			t.Row(dash(s.Meaning), len(s.Members), term.Some(s.Members, 4))
		}
	}
	return t
}

// holders returns the pods that have a table, as text.
func holders(table string, pods []api.PodID) string {
	switch {
	case table == "global":
		return "all (global)"
	case len(pods) == 0:
		return table
	}
	return term.Some(pods, 4)
}

func tableTable(tables []view.Table, wide bool) *term.Table {
	columns := []string{"RENDERER", "PODS", "KIND", "RULES", "ENTRIES"}
	if wide {
		columns = append(columns, "TABLE", "OBJECTS")
	}
	t := term.NewTable(columns...).Narrow(20, "PODS").Optional("KIND")
	for _, v := range tables {
		row := []any{v.Renderer, holders(v.Table, v.Pods), v.Kind, v.Rules, v.Entries}
		if wide {
			row = append(row, v.Table, dash(term.Few(v.Objects, 8)))
		}
		t.Row(row...)
	}
	return t
}

// ruleTable shows rules by the meaning of their sets; with their names and those of tables where it
// may be wide.
func ruleTable(rules []view.Rule, wide bool) *term.Table {
	if wide {
		t := term.NewTable("RENDERER", "TABLE", "PODS", "#", "RULE", "PACKETS", "FROM", "MEANING")
		for _, r := range rules {
			t.Row(r.Renderer, r.Table, holders(r.Table, r.Pods), r.Index, r.Rule, packets(r), dash(api.OriginTexts(r.Origins)), dash(r.Meaning))
		}
		return t
	}
	columns := []string{"PODS", "#", "RULE", "PACKETS", "FROM"}
	several := slices.ContainsFunc(rules, func(r view.Rule) bool { return r.Renderer != rules[0].Renderer })
	if several {
		columns = append([]string{"RENDERER"}, columns...)
	}
	t := term.NewTable(columns...).Narrow(48, "RULE").Narrow(24, "FROM").Narrow(16, "PODS").Optional("FROM", "PACKETS", "RENDERER")
	for _, r := range rules {
		row := []any{holders(r.Table, r.Pods), r.Index, cmp.Or(r.Meaning, r.Rule.String()), packets(r), dash(api.OriginTexts(r.Origins))}
		if several {
			row = append([]any{r.Renderer}, row...)
		}
		t.Row(row...)
	}
	return t
}

// packets returns how many packets a rule decided, as text.
func packets(r view.Rule) string {
	switch {
	case r.Packets != nil:
		return strconv.FormatUint(*r.Packets, 10)
	case r.CountedWith != nil:
		return fmt.Sprintf("in #%d", *r.CountedWith)
	}
	return "-"
}

func endpointTable(endpoints []wire.Endpoint, _ bool) *term.Table {
	t := term.NewTable("POD", "INTERFACE", "STATE", "SOURCE", "SINCE", "REASON").Narrow(20, "REASON").Optional("SOURCE", "SINCE")
	for _, e := range endpoints {
		state := term.Cell{Text: e.State}
		if e.State != wire.Enforced {
			state.Style = term.Amber
		}
		t.Row(dash(e.Pod), fmt.Sprintf("%s (%d)", e.Interface, e.Index), state, dash(e.Source), e.Since.UTC().Format(time.RFC3339), dash(e.Reason))
	}
	return t
}

var podList = listing[view.Pod]{
	what: "pods", single: "pod", aliases: []string{"po"}, short: "pods, their addresses and what isolates them", table: podTable,
	name: func(p view.Pod) string { return p.Pod.String() },
	named: func(p view.Pod, in, name string) bool {
		return p.Pod.Name == name && (in == "" || p.Pod.Namespace == in)
	},
	namespaced: true,
	special: special[view.Pod]{on: func(p view.Pod) string { return p.Node }, elsewhere: podsOfNodes, labelled: func(r *getRun, pods []view.Pod) ([]view.Pod, error) {
		return slices.DeleteFunc(pods, func(p view.Pod) bool { return !r.labels.Matches(labels.Set(p.Labels)) }), nil
	}},
}

var policyList = listing[view.Policy]{
	what: "policies", single: "policy", aliases: []string{"netpol", "np", "networkpolicy", "networkpolicies"},
	short: "policies, the local pods they apply to, and whether they are enforced", table: policyTable,
	name:      policyName,
	reference: func(p view.Policy) string { return strings.TrimPrefix(p.Policy.Namespace+"/"+p.Policy.Name, "/") },
	named: func(p view.Policy, in, name string) bool {
		return p.Policy.Name == name && (in == "" || p.Policy.Namespace == in)
	},
	namespaced: true,
	node:       func(p *view.Policy) *string { return &p.Node },
	special:    special[view.Policy]{details: writeDetails, labelled: ofPods(func(p view.Policy) []api.PodID { return p.Pods })},
}

var setList = listing[view.Set]{
	what: "sets", single: "set", short: "address sets and their members", table: setTable,
	name:   func(s view.Set) string { return s.ID.String() },
	named:  func(s view.Set, _, name string) bool { return s.ID.String() == name },
	prefix: "set:",
	node:   func(s *view.Set) *string { return &s.Node },
}

var tableList = listing[view.Table]{
	what: "tables", single: "table", short: "tables that are installed in dataplanes", table: tableTable,
	name:      func(t view.Table) string { return t.Renderer + " " + t.Table },
	reference: func(t view.Table) string { return t.Table },
	node:      func(t *view.Table) *string { return &t.Node },
	named:     func(t view.Table, in, name string) bool { return isTable(t.Table, t.Pods, in, name) },
	special:   special[view.Table]{askedBy: podList.known, labelled: ofPods(func(t view.Table) []api.PodID { return t.Pods })},
}

var ruleList = listing[view.Rule]{
	what: "rules", single: "rule", short: "rules of installed tables, with the policies they came from", table: ruleTable,
	name:      func(r view.Rule) string { return fmt.Sprintf("%s %s #%d", r.Renderer, r.Table, r.Index) },
	reference: func(r view.Rule) string { return r.Table },
	node:      func(r *view.Rule) *string { return &r.Node },
	named:     func(r view.Rule, in, name string) bool { return isTable(r.Table, r.Pods, in, name) },
	special:   special[view.Rule]{askedBy: podList.known, labelled: ofPods(func(r view.Rule) []api.PodID { return r.Pods })},
}

// isTable reports whether a name is that of a table, or of one of the pods that have it.
func isTable(table string, pods []api.PodID, in, name string) bool {
	return table == name || slices.ContainsFunc(pods, func(p api.PodID) bool {
		return p.String() == name || p.Namespace == in && p.Name == name
	})
}

// auditList lists what policies in audit mode would deny.
var auditList = listing[view.Audited]{
	what: "audit", many: "audited traffic", single: "audit", short: "what policies in audit mode would deny, by policy and workload", table: explained.AuditTable,
	namespaced: true, name: func(a view.Audited) string { return a.Policy.Short() },
	node: func(a *view.Audited) *string { return &a.Node },
	named: func(a view.Audited, in, name string) bool {
		return a.Policy.Name == name && (in == "" || a.Policy.Namespace == in)
	},
	special: special[view.Audited]{empty: "no policy in audit mode denies anything on this node", askedBy: policyList.known,
		labelled: ofPods(func(a view.Audited) []api.PodID { return a.Pods })},
}

// limitList lists limits, and what is taken of them.
var limitList = listing[view.Limit]{
	what: "limits", single: "limit", short: "quotas of namespaces and capacities of dataplanes: what is used, and what is closed", table: limitTable,
	name:    func(v view.Limit) string { return v.Limit },
	node:    func(v *view.Limit) *string { return &v.Node },
	named:   func(v view.Limit, _, name string) bool { return v.Limit == name },
	special: special[view.Limit]{details: writeClosed},
}

func limitTable(all []view.Limit, wide bool) *term.Table {
	t := term.NewTable("LIMIT", "WHAT", "USED", "MOST", "STATE", "CLOSED").Narrow(24, "LIMIT").Narrow(24, "WHAT").Narrow(16, "CLOSED").Optional("WHAT")
	for _, v := range all {
		used, most, state := "-", "-", term.Cell{Text: v.State}
		if v.Used != nil {
			used = strconv.Itoa(*v.Used)
		}
		if v.Most > 0 {
			most = strconv.Itoa(v.Most)
		}
		switch v.State {
		case view.LimitHalf:
			state.Style = term.Amber
		case view.LimitExceeded:
			state.Style = term.Red
		}
		var closed []string
		for _, c := range v.Closed {
			if name := c.Policy.Short(); !slices.Contains(closed, name) {
				closed = append(closed, name)
			}
		}
		few := 4
		if wide {
			few = len(closed)
		}
		t.Row(v.Limit, v.What, used, most, state, dash(term.Few(closed, few)))
	}
	return t
}

// writeClosed says why policies are closed, and what helps.
func writeClosed(w *term.Writer, all []view.Limit) {
	for _, v := range all {
		for _, c := range v.Closed {
			w.Printf("%s: %s\n", w.Styled(term.Red, v.Limit+" closes "+c.Policy.Short()), c.Reason)
		}
	}
}

var endpointList = listing[wire.Endpoint]{
	what: "endpoints", single: "endpoint", aliases: []string{"ep"}, short: "interfaces of pods, in the kernel and in VPP, and which are blocked",
	table:     endpointTable,
	name:      func(e wire.Endpoint) string { return fmt.Sprintf("%s (%d)", e.Interface, e.Index) },
	reference: func(e wire.Endpoint) string { return e.Pod },
	node:      func(e *wire.Endpoint) *string { return &e.Node },
	named: func(e wire.Endpoint, in, name string) bool {
		namespace, pod, _ := strings.Cut(e.Pod, "/")
		return pod == name && (in == "" || namespace == in)
	},
	namespaced: true,
	special: special[wire.Endpoint]{labelled: ofPods(func(e wire.Endpoint) []api.PodID {
		var pod api.PodID
		if pod.UnmarshalText([]byte(e.Pod)) != nil {
			return nil // that of no pod
		}
		return []api.PodID{pod}
	})},
}

var namespaceList = listing[view.Namespace]{
	what: "namespaces", single: "namespace", aliases: []string{"ns"}, short: "namespaces, with their labels, pods and policies", table: namespaceTable,
	name:  func(n view.Namespace) string { return n.Namespace },
	named: func(n view.Namespace, _, name string) bool { return n.Namespace == name },
	special: special[view.Namespace]{labelled: func(r *getRun, all []view.Namespace) ([]view.Namespace, error) {
		return slices.DeleteFunc(all, func(n view.Namespace) bool { return !r.labels.Matches(labels.Set(n.Labels)) }), nil
	}},
}

func namespaceTable(all []view.Namespace, _ bool) *term.Table {
	t := term.NewTable("NAMESPACE", "PODS", "POLICIES", "LABELS").Narrow(16, "LABELS").Narrow(20, "NAMESPACE")
	for _, n := range all {
		name := n.Namespace
		if !n.Known {
			name += " (not known)"
		}
		t.Row(name, n.Pods, n.Policies, dash(labelTexts(n.Labels)))
	}
	return t
}

// ofPods returns what selects the things that are about pods with the labels of --selector.
func ofPods[T any](pods func(T) []api.PodID) func(r *getRun, items []T) ([]T, error) {
	return func(r *getRun, items []T) ([]T, error) {
		found, err := podList.ask(r.ctx(), r, "", "") // those of --namespace and of a name are selected already
		selected := make(map[api.PodID]bool, len(found))
		for _, p := range found {
			selected[p.Pod] = true
		}
		return slices.DeleteFunc(items, func(item T) bool {
			return !slices.ContainsFunc(pods(item), func(p api.PodID) bool { return selected[p] })
		}), err
	}
}
