package configurator

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Policies in audit mode do not decide. A list permits what the enforced policies permit, and marks
// as audited what all policies together, were all of them enforced, would deny of that. So a policy
// in audit mode neither closes nor opens anything.

// enforced returns the input without policies in audit mode. closed is computed again.
func (in input) enforced(d api.Direction) input {
	audited := func(p *api.ContivPolicy) bool { return p.Audit }
	in.admin = slices.DeleteFunc(slices.Clone(in.admin), audited)
	in.isolating = slices.DeleteFunc(slices.Clone(in.isolating), audited)
	in.baseline = slices.DeleteFunc(slices.Clone(in.baseline), audited)
	in.closed = slices.ContainsFunc(in.isolating, func(p *api.ContivPolicy) bool { return hasOddRule(p, d) })
	return in
}

// decide translates the policies of the pod and of those that share its addresses: what all of them
// permit.
func (g *generator) decide() outcome {
	all := g.fold(func(in input) input { return in.enforced(g.direction) })
	if !slices.ContainsFunc(g.inputs, input.isAudited) {
		return all
	}
	return g.audit(all)
}

// fold translates what the policies of all inputs permit. of selects the policies of an input.
func (g *generator) fold(of func(input) input) outcome {
	if len(g.inputs) == 1 {
		return g.outcome(of(g.inputs[0]))
	}
	all := outcome{action: api.Permit}
	for _, in := range g.inputs {
		all = g.both(all, g.outcome(of(in)).apart(&g.peers, in.apart))
	}
	return all
}

// audit marks what an outcome permits and all policies together would deny. If that takes too many
// rules, nothing is marked, and the policies in audit mode are reported: counting must not change
// what is permitted.
func (g *generator) audit(all outcome) outcome {
	expanded, named, refused := g.expanded, g.named, len(g.refused)
	defer func() { g.expanded, g.named = expanded, named }()
	g.expanded, g.named = 0, 0
	out, ok := g.mark(all, g.fold(func(in input) input { return in.relevant(g.direction) }))
	if g.refused = g.refused[:refused]; ok && out.sections.rules() <= maxRules {
		return out
	}
	g.refused = append(g.refused, refusal{auditOrigins(g.inputs, g.direction), "what it would deny takes too many rules to be counted; nothing is denied, as the policy is in audit mode"})
	return all
}

// relevant returns the input without NetworkPolicies in audit mode that cannot deny: beside
// enforced ones, and with no admin policy in audit mode before them, they could only permit more.
func (in input) relevant(d api.Direction) input {
	enforced := in.enforced(d)
	if len(enforced.isolating) > 0 && len(enforced.admin) == len(in.admin) {
		in.isolating, in.closed = enforced.isolating, enforced.closed
	}
	return in
}

// mark returns what all decides, with the part of its permits that would denies marked. ok is false
// if that takes too many rules.
func (g *generator) mark(all, would outcome) (out outcome, ok bool) {
	out = outcome{action: all.action, origins: all.origins}
	marked := would.marked()
	for i, s := range all.sections {
		if s.action == api.Deny {
			out.sections = out.sections.add(s)
			continue
		}
		by := marked
		if i >= all.admin && g.permitsMore() {
			by = outcome{sections: marked.sections[:would.admin], action: api.Permit}
		}
		parts, ok := g.delegate(s.traffic, s.traffic, by)
		if !ok {
			return all, false
		}
		out.sections = out.sections.add(parts...)
	}
	if all.action == api.Permit {
		out.sections = out.sections.add(marked.sections...)
		out.audit, out.origins = marked.audit, union(all.origins, marked.origins)
	}
	return out, !g.exceeded()
}

// permitsMore reports whether the NetworkPolicies permit at least what the enforced ones permit, so
// that only admin policies in audit mode can deny it.
func (g *generator) permitsMore() bool {
	return len(g.inputs) == 1 && !g.closed && len(g.enforced(g.direction).isolating) > 0
}

// marked returns the outcome with audited permits in place of its denies.
func (o outcome) marked() outcome {
	sections := slices.Clone(o.sections)
	for i, s := range sections {
		if s.action == api.Deny {
			sections[i] = section{api.Permit, true, s.traffic.withOrigins(audited)}
		}
	}
	o.sections = sections
	if o.action == api.Deny {
		o.action, o.audit, o.origins = api.Permit, true, audited(o.origins)
	}
	return o
}

// audited returns the indexes of the audited forms of some origins: generator.origins has each in
// front of its origin.
func audited(origins []int32) []int32 {
	out := slices.Clone(origins)
	for i := range out {
		out[i]--
	}
	return out
}

// auditOrigins names the policies in audit mode.
func auditOrigins(inputs []input, d api.Direction) (all []api.Origin) {
	for _, in := range inputs {
		for _, p := range slices.Concat(in.admin, in.isolating, in.baseline) {
			if p.Audit {
				all = append(all, api.Origin{Policy: p.ID, Direction: d, Rule: api.IsolationRule})
			}
		}
	}
	return all
}
