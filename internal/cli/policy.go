package cli

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// policyTable lists policies. Their tiers are shown if some are admin policies;
// then they come in the order in which they are asked.
func policyTable(policies []view.Policy, _ bool) *term.Table {
	columns := []string{"POLICY", "SELECTS", "ISOLATES", "RULES", "LOCAL PODS", "ENFORCED"}
	tiers := slices.ContainsFunc(policies, func(p view.Policy) bool { return p.Priority != nil })
	if tiers {
		columns = slices.Insert(columns, 1, "TIER")
	}
	t := term.NewTable(columns...).Narrow(16, "SELECTS", "ENFORCED").Optional("RULES", "LOCAL PODS", "TIER")
	for _, p := range policies {
		row := []any{policyName(p), p.Selector, dash(term.Joined(p.Isolates)), p.Rules, len(p.Pods), enforced(p)}
		if tiers {
			row = slices.Insert(row, 1, any(tierOf(p)))
		}
		t.Row(row...)
	}
	return t
}

// tierOf returns the tier of a policy, and its priority where it has one.
func tierOf(p view.Policy) string {
	if p.Priority == nil {
		return p.Tier
	}
	return fmt.Sprintf("%s %d", p.Tier, *p.Priority)
}

func policyName(p view.Policy) string { return p.Policy.Short() }

// enforced returns in one line how far a policy is enforced.
func enforced(p view.Policy) term.Cell {
	switch p.Enforced {
	case view.EnforcedPending:
		return term.Cell{Text: string(p.Enforced) + ": " + p.Pending, Style: term.Amber}
	case view.EnforcedPartly:
		c := summary(p.Problems)
		c.Text = string(p.Enforced) + ": " + c.Text
		return c
	case view.EnforcedFully, view.EnforcedUnknown:
		if p.Audit {
			return term.Cell{Text: "audit", Style: term.Amber}
		}
	}
	return term.Cell{Text: dash(string(p.Enforced))}
}

// summary names the first problem and how many more there are.
func summary(problems []api.Problem) term.Cell {
	if len(problems) == 0 {
		return term.Cell{Text: "-"}
	}
	text := problems[0].Field + ": " + problems[0].Reason
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return term.Cell{Text: text, Style: term.Red}
}

// writeDetails writes below a table of policies everything there is to say of those
// that there is something to say of.
func writeDetails(w *term.Writer, policies []view.Policy) {
	for _, p := range policies {
		if p.Enforced != view.EnforcedFully || len(p.Notes) > 0 {
			w.Printf("\n%s\n", w.Styled(term.Bold, policyName(p)))
			writeFindings(w, p)
		}
	}
}

func writeFindings(w *term.Writer, p view.Policy) {
	if p.Pending != "" {
		w.Printf("  %s\n", w.Styled(term.Amber, "pending: "+p.Pending))
	}
	for _, x := range p.Problems {
		w.Printf("  %s\n", w.Styled(term.Red, fmt.Sprintf("not enforced (%s): %s: %s", x.Class, x.Field, x.Reason)))
	}
	for _, x := range p.Notes {
		w.Printf("  note: %s: %s\n", x.Field, x.Reason)
	}
}
