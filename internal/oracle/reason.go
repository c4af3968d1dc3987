package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// reason sums a direction up in words.
func reason(v DirectionVerdict, end side) string {
	if !v.Applies {
		return "open: " + end.note
	}
	for _, s := range v.Subjects {
		switch {
		case s.Allowed != v.Allowed:
			continue
		case s.Exempt == SelfIsPod:
			return "always permitted: a pod reaches itself"
		case s.Exempt == OwnNode:
			return "always permitted: the other end is the pod's own node"
		case s.Rule != nil:
			return v.passed() + fmt.Sprintf("%s by %s, in the %s tier", did(s.Allowed), originText(*s.Rule), s.DecidedBy)
		}
	}
	return v.passed() + v.isolationText()
}

func did(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// passed says which rules of administrators left the decision to the next tier, if
// some did.
func (d DirectionVerdict) passed() string {
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
	return "passed on by " + originTexts(slices.Compact(by)) + "; "
}

// isolationText sums up what NetworkPolicies say.
func (d DirectionVerdict) isolationText() string {
	switch {
	case d.Isolated:
		return "isolated by " + strings.Join(d.isolating(), ", ")
	case len(d.Others) > 0:
		return fmt.Sprintf("open: no policy isolates %s", d.Direction)
	case len(d.Admin)+len(d.Baseline) > 0:
		return "open: no rule of administrators decides, and no NetworkPolicy selects it"
	}
	return "open: no policy selects it"
}

// isolating names the policies that isolate a subject, sorted, each once.
func (d DirectionVerdict) isolating() []string {
	var names []string
	for _, pe := range d.Policies {
		names = append(names, policyName(pe.Policy))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// policyName returns "shop/web", and for policies of administrators the kind as well.
func policyName(id api.PolicyID) string { return id.Short() }

// reason is the sentence that answers "why?".
func (v Verdict) reason() string {
	if v.Allowed {
		return v.allowedBecause()
	}
	var parts []string
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		switch {
		case dv.Allowed:
		case parts != nil:
			parts = append(parts, fmt.Sprintf("%s denies it too", v.named(d)))
		case len(ruleNames(dv.Deciding)) > 0: // only rules of administrators deny
			parts = append(parts, fmt.Sprintf("%s is denied by %s", v.named(d), some(ruleNames(dv.Deciding), " and ")))
		default:
			dv = dv.denying()
			parts = append(parts, fmt.Sprintf("%s is isolated by %s, and %s", v.named(d), some(dv.isolating(), ", "), dv.nothingMatches()))
		}
	}
	return strings.Join(parts, "; ")
}

// denying leaves out the policies of subjects that allow the flow: pods that share
// an address need not agree.
func (d DirectionVerdict) denying() DirectionVerdict {
	d.Policies = slices.DeleteFunc(slices.Clone(d.Policies), func(pe PolicyEval) bool {
		return slices.ContainsFunc(d.Subjects, func(s SubjectResult) bool { return s.Pod == pe.Subject && s.Allowed })
	})
	return d
}

// nothingMatches says what the policies of a denied direction lack.
func (d DirectionVerdict) nothingMatches() string {
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

// allowedBecause says what each direction lets a flow through by.
func (v Verdict) allowedBecause() string {
	var by, open []string
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		switch {
		case !dv.Applies:
		case dv.exempt() == SelfIsPod:
			return "a pod always reaches itself"
		case dv.exempt() == OwnNode:
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
func (d DirectionVerdict) exempt() Exemption {
	for _, s := range d.Subjects {
		if s.Exempt != NotExempt {
			return s.Exempt
		}
	}
	return NotExempt
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
			out = append(out, originText(g))
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

// notes says what a reader of the verdict might not expect.
func (e evaluation) notes(src, dst side) []string {
	var out []string
	for _, s := range []side{src, dst} {
		if waits(&s) {
			out = append(out, fmt.Sprintf("%s has no address: judged by its labels, no block matches it", s.endpoint))
		}
		if len(s.pods) > 1 {
			out = append(out, fmt.Sprintf("%s is the address of %d pods: allowed only when allowed for all", s.addr, len(s.pods)))
		}
		for _, p := range s.pods {
			out = append(out, e.oracle.refused(p.id.Namespace)...)
		}
		if len(s.pods) > 0 {
			out = append(out, e.oracle.tiers.refusals()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// refused names the policies of a namespace that have no effect.
func (o *Oracle) refused(namespace string) []string {
	var out []string
	for _, p := range o.policiesIn(namespace) {
		if p.refusal != nil {
			out = append(out, fmt.Sprintf("%s has no effect: %v", policyID(p.obj), p.refusal))
		}
	}
	return out
}

// refusals names the policies of administrators that have no effect.
func (t tiers) refusals() []string {
	var out []string
	for _, p := range t.refused {
		out = append(out, fmt.Sprintf("%s has no effect: %v", p.id, p.refusal))
	}
	return out
}
