package configurator

import (
	"fmt"
	"slices"

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

// unite merges two ascending lists of origins, for n spans; it returns nil once a limit is
// exceeded.
func (g *generator) unite(a, b []int32, n int) []int32 {
	if g.named += n * (len(a) + len(b)); g.exceeded() {
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
	var rest traffic
	for _, p := range as(o.action) {
		ports := slices.Clone(p.ports)
		for i := range ports {
			ports[i].origins = g.unite(ports[i].origins, o.origins, len(p.peers))
		}
		rest.add(ports, p.peers...)
	}
	if g.exceeded() {
		return sections{{action: api.Deny, traffic: passed}}, false
	}
	return out.add(section{o.action, o.audit, rest}), true
}

// intersect returns the traffic that both match, with the origins of both.
func (g *generator) intersect(a, b traffic) (out traffic) {
	a, b = g.peers.disjoint(a), g.peers.disjoint(b)
	for _, p := range a {
		for _, q := range b {
			n := len(p.peers) * len(q.peers)
			both := intersect(p.ports, q.ports, func(mine []int32, other span) []int32 { return g.unite(mine, other.origins, n) })
			if len(both) == 0 {
				continue
			}
			for _, x := range p.peers {
				for _, y := range q.peers {
					if g.exceeded() {
						return out
					}
					common := g.commonPeers(x, y)
					g.expanded += len(both) * len(common)
					for i := range common {
						out.add(both, common[i:i+1:i+1]...)
					}
				}
			}
		}
	}
	return out
}
