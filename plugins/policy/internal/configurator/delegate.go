package configurator

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// maxExpanded bounds how many spans of ports what is passed on may become in one
// list: the rules of the admin tier that pass times those of lower tiers. Real
// clusters have some dozens.
const maxExpanded = 1 << 16

// maxOrigins bounds how many rules of policies the spans that delegate makes may come from, each
// counted for every span: a span of one rule that passes and of a million that permit has a
// million.
const maxOrigins = 1 << 20

// exceeded reports whether what is passed on has become too much.
func (g *generator) exceeded() bool { return g.expanded > maxExpanded || g.named > maxOrigins }

// excess says what is too much.
func (g *generator) excess() string {
	if g.expanded > maxExpanded {
		return fmt.Sprintf("take more than %d rules", maxExpanded)
	}
	return fmt.Sprintf("come from rules of policies more than %d times", maxOrigins)
}

// unite returns two ascending lists of origins as one, nothing once it is too much.
func (g *generator) unite(a, b []int32) []int32 {
	if g.named += len(a) + len(b); g.exceeded() {
		return nil
	}
	return union(a, b)
}

// delegate returns what an outcome decides about some traffic, for this traffic only;
// denied is the same traffic, with the origins that it has where it is denied. Rules
// above it have decided about their part of it, and whatever it leaves goes on to the
// rules below: so it is exact. Where that takes too many rules the traffic is denied,
// and ok is false.
func (g *generator) delegate(passed, denied traffic, o outcome) (out sections, ok bool) {
	as := func(a api.Action) traffic {
		if a == api.Deny {
			return denied
		}
		return passed
	}
	for _, s := range o.sections {
		out = out.add(section{s.action, g.intersect(as(s.action), s.traffic)})
	}
	rest := make(traffic, len(passed))
	for peer, spans := range as(o.action) {
		for _, s := range spans {
			s.origins = g.unite(s.origins, o.origins)
			rest[peer] = append(rest[peer], s)
		}
	}
	if g.exceeded() {
		return sections{{api.Deny, passed}}, false
	}
	return out.add(section{o.action, rest}), true
}

// intersect returns what two kinds of traffic have in common, with the origins of both.
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
