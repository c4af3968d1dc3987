package reason

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// end is what one end of a flow says, of which the sentences speak.
type end struct{ oracle.DirectionVerdict }

// reason sums a direction up in words.
func (d end) reason() string {
	if !d.Applies {
		return "open: " + d.NoPod
	}
	for _, s := range d.Subjects {
		switch {
		case s.Allowed != d.Allowed:
			continue
		case s.Exempt == oracle.SelfIsPod:
			return "always permitted: a pod reaches itself"
		case s.Exempt == oracle.OwnNode:
			return "always permitted: the other end is the pod's own node"
		case s.Rule != nil:
			return d.passed() + fmt.Sprintf("%s by %s, in the %s tier", did(s.Allowed), ruleText(*s.Rule), s.DecidedBy)
		}
	}
	return d.passed() + d.isolationText()
}

func did(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// passed says which admin rules left the decision to the next tier, if
// some did.
func (d end) passed() string {
	var by []api.Origin
	for _, s := range d.Subjects {
		if s.Allowed == d.Allowed {
			by = append(by, s.PassedBy...)
		}
	}
	if by == nil {
		return ""
	}
	slices.SortStableFunc(by, func(a, b api.Origin) int { return a.Compare(b) })
	return "passed on by " + ruleTexts(slices.Compact(by)) + "; "
}

// isolationText sums up what NetworkPolicies say.
func (d end) isolationText() string {
	switch {
	case d.Isolated:
		return "isolated by " + strings.Join(d.isolating(), ", ")
	case len(d.Policies) > 0:
		return "open: only policies in audit mode select it"
	case len(d.Others) > 0:
		return fmt.Sprintf("open: no policy isolates %s", d.Direction)
	case len(d.Admin)+len(d.Baseline) > 0:
		return "open: no rule of administrators decides, and no NetworkPolicy selects it"
	}
	return "open: no policy selects it"
}

// isolating names the policies that isolate a subject, sorted, each once. Those in audit mode do
// not.
func (d end) isolating() []string {
	var names []string
	for _, pe := range d.Policies {
		if !pe.Audit {
			names = append(names, pe.Policy.Short())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sentence answers "why?".
func (v Verdict) sentence() string {
	if v.Allowed {
		return v.allowedBecause()
	}
	var parts []string
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := end{v.Direction(d)}
		switch {
		case dv.Allowed:
		case parts != nil:
			parts = append(parts, fmt.Sprintf("%s denies it too", v.named(d)))
		case len(ruleNames(dv.Deciding)) > 0: // only admin rules deny
			parts = append(parts, fmt.Sprintf("%s is denied by %s", v.named(d), some(ruleNames(dv.Deciding), " and ")))
		default:
			dv = dv.denying()
			parts = append(parts, fmt.Sprintf("%s is isolated by %s, and %s", v.named(d), some(dv.isolating(), ", "), dv.nothingMatches()))
		}
	}
	return strings.Join(parts, "; ")
}

// denying leaves out the policies of subjects that allow the flow, as pods that share an address
// need not agree, and those in audit mode.
func (d end) denying() end {
	d.Policies = slices.DeleteFunc(slices.Clone(d.Policies), func(pe oracle.PolicyEval) bool {
		return pe.Audit || slices.ContainsFunc(d.Subjects, func(s oracle.SubjectResult) bool { return s.Pod == pe.Subject && s.Allowed })
	})
	return d
}

// nothingMatches returns what the policies of a denied direction lack.
func (d end) nothingMatches() string {
	rules := 0
	for _, pe := range d.Policies {
		rules += len(pe.Rules)
	}
	switch rules {
	case 0:
		return fmt.Sprintf("nothing allows any %s", d.Direction)
	case 1:
		return "the only rule does not match"
	}
	return fmt.Sprintf("none of %d rules matches", rules)
}

// allowedBecause returns why each direction allows a flow.
func (v Verdict) allowedBecause() string {
	var by, open []string
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := end{v.Direction(d)}
		switch {
		case !dv.Applies:
		case dv.exempt() == oracle.SelfIsPod:
			return "a pod always reaches itself"
		case dv.exempt() == oracle.OwnNode:
			by = append(by, "a pod and its own node always reach each other")
		case len(ruleNames(dv.Deciding)) > 0:
			by = append(by, "by "+some(ruleNames(dv.Deciding), " or "))
		default:
			open = append(open, v.named(d))
		}
	}
	switch {
	case by == nil && open == nil:
		return "neither end is a pod that policies see"
	case by == nil:
		return "no policy isolates " + strings.Join(open, " or ")
	case open == nil:
		return strings.Join(by, " and ")
	}
	return strings.Join(by, " and ") + "; no policy isolates " + strings.Join(open, " or ")
}

// exempt returns the exemption of the subjects, if one has any.
func (d end) exempt() oracle.Exemption {
	for _, s := range d.Subjects {
		if s.Exempt != oracle.NotExempt {
			return s.Exempt
		}
	}
	return oracle.NotExempt
}

// named returns for example "ingress of shop/db".
func (v Verdict) named(d api.Direction) string {
	if d == api.Egress {
		return "egress of " + v.Src.String()
	}
	return "ingress of " + v.Dst.String()
}

func ruleNames(origins []api.Origin) []string {
	var out []string
	for _, g := range origins {
		if g.Rule >= 0 {
			out = append(out, ruleText(g))
		}
	}
	return out
}

// maxNamed bounds what a sentence names; the details name all.
const maxNamed = 3

// some joins the first names and counts the rest.
func some(names []string, separator string) string {
	if len(names) <= maxNamed+1 {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// ruleText names a rule of a policy: "ingress rule 0 of shop/web".
func ruleText(rule api.Origin) string { return api.OriginTexts([]api.Origin{rule}) }

func ruleTexts(rules []api.Origin) string {
	texts := make([]string, len(rules))
	for i, g := range rules {
		texts[i] = ruleText(g)
	}
	return strings.Join(texts, " and ")
}
