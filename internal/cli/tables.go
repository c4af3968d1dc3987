package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func podTable(pods []view.Pod) *term.Table {
	columns := []string{"POD", "NODE", "ADDRESSES", "STATE", "ISOLATED", "POLICIES", "LABELS"}
	faulty := slices.ContainsFunc(pods, func(p view.Pod) bool { return len(p.Problems) > 0 })
	if faulty { // which is seldom, and then it must not be overlooked
		columns = append(columns, "PROBLEMS")
	}
	t := term.NewTable(columns...)
	for _, p := range pods {
		var policies []string
		for _, id := range p.Policies {
			policies = append(policies, id.Name)
		}
		row := []any{p.Pod, p.Node, joined(p.Addresses), p.State, dash(joined(p.Isolated)), dash(strings.Join(policies, ",")), labels(p.Labels)}
		if faulty {
			row = append(row, summary(p.Problems))
		}
		t.Row(row...)
	}
	return t
}

func setTable(sets []view.Set) *term.Table {
	t := term.NewTable("SET", "MEMBERS", "ADDRESSES", "MEANING")
	for _, s := range sets {
		t.Row(s.ID, len(s.Members), some(s.Members, 4), s.Meaning)
	}
	return t
}

func tableTable(tables []view.Table) *term.Table {
	t := term.NewTable("RENDERER", "TABLE", "KIND", "RULES", "ENTRIES", "OBJECTS", "PODS")
	for _, v := range tables {
		t.Row(v.Renderer, v.Table, v.Kind, v.Rules, v.Entries, dash(few(v.Objects, 8)), dash(some(v.Pods, 4)))
	}
	return t
}

func ruleTable(rules []view.Rule) *term.Table {
	t := term.NewTable("RENDERER", "TABLE", "#", "RULE", "HITS", "FROM")
	for _, r := range rules {
		hits := "-"
		if r.Hits != nil {
			hits = strconv.FormatUint(*r.Hits, 10)
		} else if r.CountedWith != nil {
			hits = fmt.Sprintf("in #%d", *r.CountedWith)
		}
		t.Row(r.Renderer, r.Table, r.Index, r.Rule, hits, dash(some(r.Origins, 3)))
	}
	return t
}

func endpointTable(endpoints []wire.Endpoint) *term.Table {
	t := term.NewTable("POD", "INTERFACE", "STATE", "SOURCE", "SINCE", "REASON")
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
	what: "pods", aliases: []string{"pod", "po"}, short: "List pods, their addresses and what isolates them", arg: "[NAMESPACE/]NAME", table: podTable,
	named: func(p view.Pod, in, name string) bool {
		return p.Pod.Name == name && (in == "" || p.Pod.Namespace == in)
	},
	namespaced: true,
}

var policyList = listing[view.Policy]{
	what: "policies", aliases: []string{"netpol", "np", "networkpolicy", "networkpolicies"},
	short: "List policies, the local pods they apply to, and whether they are enforced", arg: "[NAMESPACE/]NAME", table: policyTable,
	named: func(p view.Policy, in, name string) bool {
		return p.Policy.Name == name && (in == "" || p.Policy.Namespace == in)
	},
	namespaced: true,
}

var setList = listing[view.Set]{
	what: "sets", aliases: []string{"set"}, short: "List address sets and their members", arg: "SET", table: setTable,
	named:  func(s view.Set, _, name string) bool { return s.ID.String() == name },
	prefix: "set:",
}

var tableList = listing[view.Table]{
	what: "tables", aliases: []string{"table"}, short: "List installed tables", arg: "TABLE", table: tableTable,
	named: func(t view.Table, _, name string) bool { return t.Table == name },
}

var ruleList = listing[view.Rule]{
	what: "rules", aliases: []string{"rule"}, short: "List the rules of installed tables, with the policies they came from", arg: "TABLE", table: ruleTable,
	named: func(r view.Rule, _, name string) bool { return r.Table == name },
}

var endpointList = listing[wire.Endpoint]{
	what: "endpoints", aliases: []string{"endpoint", "ep"}, short: "List the interfaces of pods, in the kernel and in VPP, and which are blocked", arg: "[NAMESPACE/]NAME",
	table: endpointTable,
	named: func(e wire.Endpoint, in, name string) bool {
		namespace, pod, _ := strings.Cut(e.Pod, "/")
		return pod == name && (in == "" || namespace == in)
	},
	namespaced: true,
}
