package harness

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer"
)

// Explain returns what the renderers of all nodes do with a flow, and why. Renderers
// that cannot explain have nothing to say.
func (f *Cluster) Explain(flow api.Flow) []renderer.Decision {
	var out []renderer.Decision
	for _, name := range f.Names() {
		if e, ok := renderer.As[renderer.Explainer](f.nodes[name].Backend.Renderer()); ok {
			out = append(out, e.Explain(flow)...)
		}
	}
	return out
}

// Explains reports whether the renderers can explain.
func (f *Cluster) Explains() bool {
	for _, n := range f.nodes {
		_, ok := renderer.As[renderer.Explainer](n.Backend.Renderer())
		return ok
	}
	return false
}

// misexplained compares decisions with a verdict. A policy that is reported to deny must deny
// according to the oracle, or have passed the flow on to what does. Of the rules that are said to
// permit one must be a reason: a rule can combine more than what this flow needs, and a pod that is
// open in effect has no table that could name one.
func misexplained(v oracle.Verdict, decisions []renderer.Decision) string {
	allowed := true
	var named []api.Origin
	for _, d := range decisions {
		if d.Action == api.Deny {
			allowed = false
			if len(d.Origins) == 0 {
				return "a denial has no reason"
			}
		}
		if (d.Action == api.Permit) == v.Allowed {
			named = append(named, d.Origins...)
		}
	}
	if allowed != v.Allowed {
		return fmt.Sprintf("explained as %t, but is %t", allowed, v.Allowed)
	}
	if why := misaudited(v, decisions); why != "" {
		return why
	}
	if v.Allowed && isExempt(v) {
		return "" // whatever rule lets the node through, it is not for its policy's sake
	}
	named = slices.DeleteFunc(named, func(o api.Origin) bool { return o.Audit }) // see misaudited
	deciding, passed := reasons(v)
	isReason := func(g api.Origin) bool { return slices.Contains(deciding, g) || slices.Contains(passed, g) }
	isDeciding := func(g api.Origin) bool { return slices.Contains(deciding, g) }
	switch wrong := slices.IndexFunc(named, func(g api.Origin) bool { return !isReason(g) }); {
	case v.Allowed && len(named) > 0 && len(deciding) > 0 && !slices.ContainsFunc(named, isReason):
		return fmt.Sprintf("none of %v allows it", named)
	case !v.Allowed && wrong >= 0:
		return fmt.Sprintf("%s is said to deny", named[wrong])
	case !v.Allowed && !slices.ContainsFunc(named, isDeciding):
		return fmt.Sprintf("none of %v denies it", named)
	}
	return ""
}

// misaudited compares what decisions audit with a verdict. Security groups are unions of rules,
// which only name the origins.
func misaudited(v oracle.Verdict, decisions []renderer.Decision) string {
	if !v.Allowed || slices.ContainsFunc(decisions, func(d renderer.Decision) bool { return d.Renderer == "secgroup" }) {
		return ""
	}
	audited, by := false, []api.Origin(nil)
	for _, d := range decisions {
		audited = audited || d.Match.Audit
		by = append(by, d.Origins...)
	}
	would := v.WouldDeny()
	switch {
	case audited != (len(would) > 0):
		return fmt.Sprintf("audited: %t, would be denied by %v", audited, would)
	case audited && !slices.ContainsFunc(by, func(o api.Origin) bool { return slices.Contains(would, o) }):
		return fmt.Sprintf("%v would deny it, and %v are named", would, by)
	}
	return ""
}

// reasons returns the rules that decide according to the oracle, and those that passed the flow on
// to them or would allow it out of audit mode, of both directions.
func reasons(v oracle.Verdict) (deciding, passed []api.Origin) {
	for _, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
		if d.Allowed == v.Allowed {
			deciding = append(deciding, d.Deciding...)
			passed = append(append(passed, d.PassedBy()...), d.Would...)
		}
	}
	return deciding, passed
}

// isExempt reports whether an end is permitted although it is isolated.
func isExempt(v oracle.Verdict) bool {
	return slices.ContainsFunc(slices.Concat(v.Egress.Subjects, v.Ingress.Subjects), func(r oracle.SubjectResult) bool {
		return r.Exempt != oracle.NotExempt
	})
}
