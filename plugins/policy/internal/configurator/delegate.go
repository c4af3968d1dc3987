package configurator

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// maxExpanded bounds how many port spans the delegation of passed traffic may add to one list: the
// number of admin rules that pass times the number of rules of lower tiers. Real clusters have some
// dozens.
const maxExpanded = 1 << 16

// maxOrigins bounds the number of origins of the spans that delegate creates, summed over the
// spans: a span of one rule that passes and a million that permit has a million origins.
const maxOrigins = 1 << 20

// exceeded reports whether delegation exceeds a limit.
func (g *generator) exceeded() bool { return g.expanded > maxExpanded || g.named > maxOrigins }

// excess describes the exceeded limit.
func (g *generator) excess() string {
	if g.expanded > maxExpanded {
		return fmt.Sprintf("take more than %d rules", maxExpanded)
	}
	return fmt.Sprintf("come from rules of policies more than %d times", maxOrigins)
}

// unite merges two ascending lists of origins; it returns nil once a limit is exceeded.
func (g *generator) unite(a, b []int32) []int32 {
	if g.named += len(a) + len(b); g.exceeded() {
		return nil
	}
	return union(a, b)
}

// delegate restricts an outcome to some traffic; denied is the same traffic, with the origins to
// use where it is denied. This is exact: earlier rules have already decided their part of the
// traffic, and whatever the result leaves goes on to later rules. If it takes too many rules, the
// traffic is denied and ok is false.
func (g *generator) delegate(passed, denied traffic, o outcome) (out sections, ok bool) {
	as := func(a api.Action) traffic {
		if a == api.Deny {
			return denied
		}
		return passed
	}
	for _, s := range o.sections {
		out = out.add(section{s.action, s.audit, g.intersect(as(s.action), s.traffic)})
	}
	rest := make(traffic, len(passed))
	for peer, spans := range as(o.action) {
		for _, s := range spans {
			s.origins = g.unite(s.origins, o.origins)
			rest[peer] = append(rest[peer], s)
		}
	}
	if g.exceeded() {
		return sections{{action: api.Deny, traffic: passed}}, false
	}
	return out.add(section{o.action, o.audit, rest}), true
}

// intersect returns the traffic that both match, with the origins of both.
func (g *generator) intersect(a, b traffic) traffic {
	out := traffic{}
	byPeer := make(map[api.Net]portSet, len(b))
	for peer, spans := range b {
		byPeer[peer] = newPortSet(spans)
	}
	for p, spans := range a {
		ports := newPortSet(spans)
		for q, others := range byPeer {
			if g.exceeded() {
				return out
			}
			both := ports.intersect(others, g.unite)
			if len(both) == 0 {
				continue
			}
			for _, net := range g.commonNets(p, q) {
				g.expanded += len(both)
				out.add(net, both)
			}
		}
	}
	return out
}
