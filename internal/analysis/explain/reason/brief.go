package reason

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Side is what one end of a flow says, in a line or two.
type Side struct {
	Direction api.Direction
	End       string
	Allowed   bool
	Because   string // the policies that decide, or why none does
	// Nearest is the rule that came nearest to allowing the flow, and why it does not; empty where
	// the end allows it, or has no rule.
	Nearest string
}

// Sides sums up both ends of a flow, that of the source first; none where there can be no flow.
func (v Verdict) Sides() []Side {
	if v.Egress.Reason == "" {
		return nil
	}
	var out []Side
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := end{v.Direction(d)}
		s := Side{Direction: d, End: v.Src.String(), Allowed: dv.Allowed, Because: dv.because()}
		if d == api.Ingress {
			s.End = v.Dst.String()
		}
		if !dv.Allowed && len(ruleNames(dv.Deciding)) == 0 { // what administrators deny no such rule allows
			s.Nearest = dv.denying().nearest()
		}
		out = append(out, s)
	}
	return out
}

// because names what decides about an end.
func (d end) because() string {
	rules := ruleNames(d.Deciding)
	switch {
	case len(rules) > 0:
		return d.passed() + "by " + some(rules, " and ")
	case !d.Allowed:
		return d.passed() + "isolated by " + some(d.denying().isolating(), ", ") + "; " + d.denying().nothingMatches()
	}
	return strings.TrimPrefix(d.Reason, "open: ")
}

// nearest names the rule of a NetworkPolicy with the fewest sides that do not match, and the terms
// that fail. Of two rules that are equally near it is the one whose peers match.
func (d end) nearest() string {
	var best *oracle.RuleEval
	var origin api.Origin
	for _, pe := range d.Policies {
		for i := range pe.Rules {
			r := &pe.Rules[i]
			if best == nil || r.Failures() < best.Failures() || r.Failures() == best.Failures() && r.PeerMatched && !best.PeerMatched {
				best, origin = r, api.Origin{Policy: pe.Policy, Direction: d.Direction, Rule: r.Index}
			}
		}
	}
	if best == nil {
		return ""
	}
	switch {
	case !best.PeerMatched && !best.PortMatched:
		return ruleText(origin) + ": neither a peer nor a port"
	case !best.PeerMatched:
		return ruleText(origin) + ": " + failed(best.Peers)
	}
	return ruleText(origin) + ": " + failed(best.Ports)
}

// failed returns why the first of the terms does not match, and how many more do not.
func failed(terms []oracle.TermEval) string {
	i := slices.IndexFunc(terms, func(t oracle.TermEval) bool { return !t.Matched })
	if i < 0 {
		return "" // a side that does not match has such a term
	}
	text := fmt.Sprintf("not %q, as %s", terms[i].Term, terms[i].Why)
	if more := len(terms) - i - 1; more > 0 {
		text += fmt.Sprintf(" (nor are %d more)", more)
	}
	return text
}

// Fix returns the smallest change that would allow a flow that is denied, a line for each part of
// it. It adds whom to ask first where administrators deny it. It returns none for a flow that is
// allowed.
func (v Verdict) Fix() (out []string) {
	if v.Allowed {
		return nil
	}
	if named := v.deniedBy(); len(named) > 0 {
		out = append(out, "ask the administrators about "+ruleTexts(named))
	}
	for _, c := range v.Changes {
		if !c.Flips {
			continue
		}
		if len(c.Parts) == 0 {
			return append(out, c.Text)
		}
		for i, part := range c.Parts {
			out = append(out, strings.Repeat("and ", min(i, 1))+part.Text)
		}
		return out
	}
	return append(out, "no small change was found that would allow it")
}

// deniedBy returns the admin rules that deny the flow, each once.
func (v Verdict) deniedBy() (named []api.Origin) {
	for _, s := range slices.Concat(v.Egress.Subjects, v.Ingress.Subjects) {
		if !s.Allowed && s.Rule != nil && !slices.Contains(named, *s.Rule) {
			named = append(named, *s.Rule)
		}
	}
	return named
}
