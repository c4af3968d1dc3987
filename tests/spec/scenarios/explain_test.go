package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// explain prints the reasons of verdicts, as the specification has them. Renderers
// that can explain themselves must name no other reason for a denial.
func (q questions) explain(_ context.Context, c command) (string, error) {
	l := c.line()
	asks, err := q.world.reader().asks(c.Input)
	if err := errors.Join(err, l.end()); err != nil {
		return "", err
	}
	var b strings.Builder
	expected := q.subject.expected()
	for _, a := range asks {
		v := expected.Oracle.Verdict(a.flow)
		if got := q.subject.running.Does(a.flow, v.Allowed); got != v.Allowed {
			return "", fmt.Errorf("%s: the dataplanes say %s\n%s%s", a, allowedText(got), reason.Of(v), q.subject.running.Trace(a.flow))
		}
		if err := expected.Explained(q.subject.running, a.flow); err != nil {
			return "", fmt.Errorf("%s: %w", a, err)
		}
		fmt.Fprintf(&b, "%s: %s\n", a, allowedText(v.Allowed))
		for _, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
			if d.Applies {
				fmt.Fprintf(&b, "  %s: %s\n", d.Direction, because(d))
			}
		}
	}
	return b.String(), nil
}

func allowedText(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// because names the rules that decide a direction.
func because(d oracle.DirectionVerdict) string {
	var rules []string
	for _, g := range d.Deciding {
		rules = append(rules, ruleName(g))
	}
	var steps []string
	for _, g := range d.PassedBy() {
		steps = append(steps, "passed on by "+ruleName(g))
	}
	switch {
	case slices.ContainsFunc(d.Subjects, func(s oracle.SubjectResult) bool { return s.Exempt == oracle.SelfIsPod }):
		return "allowed, the pod itself"
	case rules == nil:
		steps = append(steps, "allowed, not isolated")
	default:
		steps = append(steps, allowedText(d.Allowed)+" by "+strings.Join(rules, " and "))
	}
	return strings.Join(steps, ", ")
}

// shortKinds are the kinds of administrators' policies as files name them.
var shortKinds = map[api.PolicyKind]string{
	api.AdminNetworkPolicy: "anp", api.BaselineAdminNetworkPolicy: "banp", api.ClusterNetworkPolicy: "cnp",
}

// ruleName returns "rule 0 of shop/web" or "rule 0 of cnp guard".
func ruleName(g api.Origin) string {
	policy := g.Policy.Namespace + "/" + g.Policy.Name
	if kind, ok := shortKinds[g.Policy.Kind]; ok {
		policy = kind + " " + g.Policy.Name
	}
	switch g.Rule {
	case api.IsolationRule:
		return "the isolation of " + policy
	case api.NodeRule:
		return "the own node, for all of " + policy
	}
	return fmt.Sprintf("rule %d of %s", g.Rule, policy)
}
