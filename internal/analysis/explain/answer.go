package explain

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
)

// Node is a node to be asked: what it must enforce, and its dataplanes.
type Node struct {
	Name string // empty where all pods are those of one node
	Specification
	// Renderers are asked if they implement renderer.Explainer.
	Renderers []renderer.Renderer
	// Send sends the first packet of a flow through the embedded dataplane of the
	// node; nil without one.
	Send func(api.Flow) (verdict api.Action, reason string)
	// Pending reports that the newest state is not enforced yet, so that answers may differ.
	Pending bool
	// Meanings is the content of its sets; if nil, rules have their names.
	Meanings Meanings
}

// Explanation answers a question by a verdict of the specification, which is that of
// every node, and by what the nodes do.
func Explanation(q Question, v reason.Verdict, nodes ...Node) view.Explanation {
	e := view.Explanation{Src: q.Src, Dst: q.Dst, Flow: q.Flow, Allowed: v.Allowed, Oracle: v, Service: q.Service}
	if q.leadsNowhere() {
		return e
	}
	for _, n := range nodes {
		answers := n.answers(q, v.Verdict)
		e.Renderers = append(e.Renderers, answers...)
		e.RenderersDiffer = e.RenderersDiffer || differ(answers)
		if p, ok := n.packet(q, v.Verdict); ok {
			e.Packets = append(e.Packets, p)
		}
	}
	return e
}

// differ reports whether two of those that were asked answer differently.
func differ(answers []view.Answer) bool {
	asked := slices.DeleteFunc(slices.Clone(answers), func(a view.Answer) bool { return a.Unasked != "" })
	return slices.ContainsFunc(asked, func(a view.Answer) bool { return a.Allowed != asked[0].Allowed })
}

// Disagrees reports whether some part of an explanation contradicts the specification.
func Disagrees(e view.Explanation) bool {
	return slices.ContainsFunc(e.Renderers, func(a view.Answer) bool { return !a.Agrees }) ||
		slices.ContainsFunc(e.Packets, func(p view.Packet) bool { return p.Verdict != p.Expected })
}

// answers asks every renderer of the node.
func (n Node) answers(q Question, v oracle.Verdict) []view.Answer {
	expected, decides := n.DecidedByNode(v)
	var out []view.Answer
	for _, r := range n.Renderers {
		a := view.Answer{Renderer: r.Name(), Node: n.Name, Allowed: expected, Decides: decides, Agrees: true, Pending: n.Pending}
		x, ok := renderer.As[renderer.Explainer](r)
		switch {
		case !ok:
			a.Unasked = "it does not explain itself"
		default:
			if a.Unasked = unasked(q); a.Unasked == "" {
				a.Unasked = notApplicable(r, q.Flow)
			}
		}
		if a.Unasked == "" {
			a.Decisions = x.Explain(q.Flow)
			a.Meanings = n.Meanings.rulesOf(a.Decisions)
			a.Allowed = permits(a.Decisions)
			a.Agrees = a.Allowed == expected
			a.Origins, a.Unnamed = rolesOf(a, v)
			a.Foreign = n.foreign(r, q, decides)
		}
		out = append(out, a)
	}
	return out
}

// foreign says what another process has installed that decides about a flow before the renderer's
// tables do, where the node decides.
func (n Node) foreign(r renderer.Renderer, q Question, decides []api.Direction) (out []string) {
	x, ok := renderer.As[renderer.Inspector](r)
	if !ok || len(decides) == 0 {
		return nil
	}
	for _, f := range x.State().Foreign {
		if f.First && f.Meets(n.own(q.Src.Pod), n.own(q.Dst.Pod)) {
			out = append(out, f.String())
		}
	}
	return out
}

// unasked returns why no table applies to a flow.
func unasked(q Question) string {
	for _, p := range []view.Party{q.Src, q.Dst} {
		if !p.Address.IsValid() {
			return fmt.Sprintf("nothing is installed for %s before it has an address", p.Name)
		}
	}
	if q.Src.Address == q.Dst.Address || q.Src.Pod == q.Dst.Pod && q.Src.Pod != (api.PodID{}) {
		return "the packet meets no table: it stays where it is"
	}
	return ""
}

// notApplicable returns why a renderer's dataplane does not decide about a flow.
func notApplicable(r renderer.Renderer, f api.Flow) string {
	if x, ok := renderer.As[renderer.Scope](r); ok {
		return x.NotApplicable(f)
	}
	return ""
}

func permits(decisions []renderer.Decision) bool {
	return !slices.ContainsFunc(decisions, func(d renderer.Decision) bool { return d.Action == api.Deny })
}

// packet sends one, if the node decides about the flow.
func (n Node) packet(q Question, v oracle.Verdict) (view.Packet, bool) {
	expected, decides := n.DecidedByNode(v)
	if n.Send == nil || len(decides) == 0 || unasked(q) != "" {
		return view.Packet{}, false
	}
	p := view.Packet{Node: n.Name, Expected: api.Deny}
	if expected {
		p.Expected = api.Permit
	}
	p.Verdict, p.Reason = n.Send(q.Flow)
	return p, true
}

// rolesOf gives every origin that decides the answer its role in the verdict, and
// returns what decides in the verdict and is not among them.
func rolesOf(a view.Answer, v oracle.Verdict) (named []view.NamedOrigin, unnamed []api.Origin) {
	var origins []api.Origin
	for _, d := range a.Decisions {
		if (d.Action == api.Permit) == a.Allowed {
			origins = append(origins, d.Origins...)
		}
	}
	slices.SortFunc(origins, api.Origin.Compare)
	origins = slices.Compact(origins)
	for _, g := range origins {
		named = append(named, view.NamedOrigin{Origin: g, Role: Role(v, g)})
	}
	for _, d := range a.Decides {
		dv := v.Direction(d)
		if dv.Allowed != a.Allowed {
			continue
		}
		for _, g := range dv.Deciding {
			if !slices.Contains(origins, g) {
				unnamed = append(unnamed, g)
			}
		}
	}
	return named, unnamed
}

// Role returns the part that a rule of a policy, or its isolation, plays in a verdict.
func Role(v oracle.Verdict, g api.Origin) view.OriginRole {
	dv := v.Direction(g.Direction)
	if g.Audit {
		return view.OriginAudits
	}
	if slices.Contains(dv.Deciding, g) {
		return view.OriginDecides
	}
	if g.Policy.Kind != api.NetworkPolicy {
		return tierRole(dv, g)
	}
	role := view.OriginUnknown
	for _, pe := range dv.Policies { // there is one for every pod that shares the address
		switch {
		case pe.Policy != g.Policy || g.Rule >= len(pe.Rules):
		case g.Rule == api.IsolationRule, g.Rule >= 0 && pe.Rules[g.Rule].Matched:
			return view.OriginMatches
		case g.Rule >= 0, g.Rule == api.NodeRule:
			role = view.OriginMerged
		}
	}
	return role
}

// tierRole returns the part of an admin rule that does not decide.
func tierRole(dv oracle.DirectionVerdict, g api.Origin) view.OriginRole {
	for _, r := range dv.Subjects {
		if slices.Contains(r.PassedBy, g) {
			return view.OriginPasses
		}
	}
	role := view.OriginUnknown
	for _, te := range slices.Concat(dv.Admin, dv.Baseline) { // there is one for every pod that shares the address
		switch {
		case te.Policy != g.Policy || g.Rule < 0 || g.Rule >= len(te.Rules)+te.NotAsked:
		case g.Rule < len(te.Rules) && te.Rules[g.Rule].Matched:
			return view.OriginMatches
		case g.Rule < len(te.Rules):
			role = view.OriginMerged
		case role == view.OriginUnknown:
			role = view.OriginBehind
		}
	}
	return role
}
