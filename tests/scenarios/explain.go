package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/renderer"
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
	o := q.subject.oracle()
	for _, a := range asks {
		v := o.Verdict(a.flow)
		if err := q.subject.agrees(v); err != nil {
			return "", fmt.Errorf("%s: %w\n%s%s", a, err, reason.Of(v), q.subject.running.Trace(a.flow))
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

// agrees compares a verdict with the stacks, and with what their renderers say.
func (s *subject) agrees(v oracle.Verdict) error {
	if got := s.running.Does(v.Flow, v.Allowed); got != v.Allowed {
		return fmt.Errorf("the stacks say %s", allowedText(got))
	}
	denies := func(g api.Origin) bool {
		return slices.ContainsFunc([]oracle.DirectionVerdict{v.Egress, v.Ingress}, func(d oracle.DirectionVerdict) bool {
			return !d.Allowed && (slices.Contains(d.Deciding, g) || slices.Contains(d.PassedBy(), g))
		})
	}
	for _, name := range s.running.Names() {
		e, ok := renderer.As[renderer.Explainer](s.running.Node(name).Backend.Renderer())
		if !ok || v.Flow.Src == v.Flow.Dst {
			continue
		}
		for _, d := range e.Explain(v.Flow) {
			for _, g := range d.Origins {
				if d.Action == api.Deny && !denies(g) {
					return fmt.Errorf("the renderer of node %s names %s as the reason", name, g)
				}
			}
		}
	}
	return nil
}
