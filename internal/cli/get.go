package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newGet(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List what the agent knows and enforces",
		Long: `List what the agent knows and enforces: all of a kind, or what is named. A name is exact, and stands for that name in every
namespace unless it has one, as in shop/web-0, or --namespace is given. --contains lists what has a text in its name.

Exit codes: 0 done, 1 something that is named is not there, 2 error.`,
		Example: `  sluicectl get pods -n shop
  sluicectl get pod shop/web-0 data/redis-0
  sluicectl get sets --contains app=web
  sluicectl get rules global -o yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: oneOf,
	}
	namespace := cmd.PersistentFlags().StringP("namespace", "n", "", "only this namespace")
	cmd.AddCommand(
		podList.command(o, namespace),
		policyList.command(o, namespace),
		newPolicy(o, namespace),
		setList.command(o, namespace),
		tableList.command(o, namespace),
		ruleList.command(o, namespace),
		endpointList.command(o, namespace),
		newNodes(o, namespace),
		newStatus(o),
	)
	return cmd
}

// oneOf is run for a command that only has others below it: without an argument it is
// asked what these are.
func oneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("%s has no %q: want %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
}

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

func newStatus(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show what the agent is doing, and whether everything is enforced",
		Example: "  sluicectl get status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s view.Status
			if err := o.client().get(cmd.Context(), "/v1/status", &s); err != nil {
				return err
			}
			return o.output.print(o.out, s, func(w *term.Writer) { writeStatus(w, s) })
		},
	}
}

func writeStatus(w *term.Writer, s view.Status) {
	t := &term.Table{}
	t.Row("version", s.Version)
	t.Row("node", dash(s.Node))
	t.Row("source", s.Source)
	t.Row("revision", fmt.Sprintf("%d enforced, %d seen", s.Revision, s.Seen))
	writeStore(t, s.Store, time.Now())
	t.Row("state", fmt.Sprintf("%s (%d local), %s, %s", term.Count(s.Pods, "pod"), s.Local, term.Count(s.Policies, "policy"), term.Count(s.Sets, "set")))
	if s.Unenforced > 0 {
		t.Row("policies", term.Cell{Text: fmt.Sprintf("%d of %d are not enforced in full, see get policies", s.Unenforced, s.Policies), Style: term.Red})
	}
	if n := len(s.Waiting); n > 0 {
		t.Row("waiting", term.Cell{Text: term.Count(n, "pod") + " for new rules: " + few(s.Waiting, 5), Style: term.Amber})
	}
	if n := len(s.Problems); n > 0 {
		t.Row("problems", n)
	}
	for _, r := range s.Renderers {
		state := term.Cell{Text: "in sync", Style: term.Green}
		switch {
		case r.Error != "":
			state = term.Cell{Text: "not in sync: " + r.Error, Style: term.Red}
		case !r.InSync:
			state = term.Cell{Text: "nothing enforced yet", Style: term.Amber}
		case r.Dataplane != "":
			state = term.Cell{Text: "not in sync: " + r.Dataplane, Style: term.Red}
		}
		if !r.InSync && !r.Since.IsZero() && r.Error != "" {
			state.Text += lasting(r.Since, time.Now())
		}
		if n := len(r.Blocked); n > 0 {
			state.Text += fmt.Sprintf("; %s of unknown pods blocked: %s", term.Count(n, "interface"), few(r.Blocked, 5))
		}
		if r.Open > 0 {
			state.Text += "; " + term.Count(r.Open, "connection") + " open that policy no longer permits"
		}
		if r.Waiting > 0 {
			state.Text += fmt.Sprintf("; %s waiting to join sets, the oldest for %s", term.Count(r.Waiting, "address"),
				time.Since(r.WaitingSince).Round(100*time.Millisecond))
		}
		if !r.Behind.IsZero() {
			state.Text += fmt.Sprintf("; some interfaces have the rules of %s ago, and are changed one by one", time.Since(r.Behind).Round(100*time.Millisecond))
		}
		holds := fmt.Sprintf("%s, %s, %s, %s", term.Count(r.Tables, "table"), term.Count(r.Rules, "rule"), term.Count(r.Entries, "entry"), term.Count(int(r.Commits), "commit"))
		if r.Sessions.Max > 0 {
			holds += fmt.Sprintf(", %d of %s", r.Sessions.Used, term.Count(int(r.Sessions.Max), "session"))
		}
		t.Row("renderer "+r.Name, state, holds)
	}
	t.Print(w)
	for _, r := range s.Renderers {
		for _, f := range r.Foreign {
			w.Printf("%s\n", w.Styled(term.Amber, "renderer "+r.Name+": "+f))
		}
	}
	for _, p := range s.Problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
}

// joined writes values with commas between them.
func joined[T fmt.Stringer](values []T) string { return some(values, len(values)) }

// some writes at most n values and how many more there are.
func some[T fmt.Stringer](values []T, n int) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return few(texts, n)
}

// few returns the first n texts, and how many there are beside them.
func few(texts []string, n int) string {
	if left := len(texts) - n; left > 0 {
		return fmt.Sprintf("%s,+%d", strings.Join(texts[:n], ","), left)
	}
	return strings.Join(texts, ",")
}

func labels(set map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}
	return strings.Join(out, ",")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// side names a party with its address, when that says more.
func side(p view.Party) string {
	if p.Pod == (api.PodID{}) {
		return p.Name
	}
	return p.Name + " (" + p.Address.String() + ")"
}
