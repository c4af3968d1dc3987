package configurator

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// generated is what the policies of one direction come to.
type generated struct {
	rules   []api.ContivRule
	origins [][]api.Origin // of rules[i]
	sets    []addressSet   // derived sets that rules name, by ID
}

// addressSet is a set of addresses that stands for many prefixes in rules.
type addressSet struct {
	id      api.SetID
	members []netip.Prefix // the fewest, in order
}

// generate translates the policies of a pod in one direction (the pod's) into an
// ordered list of rules, whose first match decides. It is pure: the list depends
// on nothing but the arguments, and not on the order of anything in them.
//
// It returns nil when nothing restricts the direction. Otherwise the list holds
// the fewest permits that it can find for the rules of all policies that isolate
// the pod, those of its own node first, and one deny of the rest; or a single
// permit of everything when some rule permits that.
//
// Only NetworkPolicy is translated so far. A policy of another tier that has rules
// in this direction, and a rule that does anything but allow, could forbid what
// others permit: then the direction is closed, but for the node.
func generate(d api.Direction, policies []*api.ContivPolicy, allowNode bool) *generated {
	in := collect(d, policies)
	if len(in.isolating) == 0 {
		return nil
	}
	g := newGenerator(in)
	if !in.closed {
		if everything := g.addClauses(); everything != nil {
			return &generated{rules: []api.ContivRule{{Action: api.Permit}}, origins: [][]api.Origin{g.originsOf(everything)}}
		}
	}
	if allowNode {
		g.add(api.SetNet(api.NodeSet), portSet{anySpan(g.nodeOrigins())})
	}
	return g.list()
}

// input is what one direction of some policies consists of.
type input struct {
	direction api.Direction
	isolating []*api.ContivPolicy // those that close the direction included
	closed    bool                // there is something that could forbid and that is not translated
}

func collect(d api.Direction, policies []*api.ContivPolicy) input {
	in := input{direction: d}
	for _, p := range policies {
		foreign := p.Tier != api.TierNetworkPolicy && len(p.Rules(d)) > 0
		if !foreign && !p.Isolates(d) {
			continue
		}
		in.isolating = append(in.isolating, p)
		in.closed = in.closed || foreign ||
			slices.ContainsFunc(p.Rules(d), func(r api.PolicyRule) bool { return r.Action != api.RuleAllow })
	}
	return in
}

// comparePolicies is the order of evaluation: by tier, priority and ID.
func comparePolicies(a, b *api.ContivPolicy) int {
	return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Priority, b.Priority), a.ID.Compare(b.ID))
}

// generator gathers, per peer, the ports on which it is permitted.
type generator struct {
	input
	origins []api.Origin // of the rules of all policies and of their node exemptions, sorted
	any     portSet      // what any peer may reach
	peers   map[api.Net][]span
	sets    map[api.SetID][]netip.Prefix // derived sets
}

func newGenerator(in input) *generator {
	g := &generator{input: in, peers: map[api.Net][]span{}, sets: map[api.SetID][]netip.Prefix{}}
	for _, p := range in.isolating {
		g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: in.direction, Rule: api.NodeRule})
		for _, r := range p.Rules(in.direction) {
			g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: in.direction, Rule: r.Index})
		}
	}
	slices.SortFunc(g.origins, api.Origin.Compare)
	g.origins = slices.Compact(g.origins)
	return g
}

// origin returns the index of an origin.
func (g *generator) origin(p *api.ContivPolicy, rule int) int32 {
	i, _ := slices.BinarySearchFunc(g.origins, api.Origin{Policy: p.ID, Direction: g.direction, Rule: rule}, api.Origin.Compare)
	return int32(i)
}

func (g *generator) nodeOrigins() []int32 {
	var indexes []int32
	for i, o := range g.origins {
		if o.Rule == api.NodeRule {
			indexes = append(indexes, int32(i))
		}
	}
	return indexes
}

// add permits a peer on some ports.
func (g *generator) add(peer api.Net, ports portSet) {
	if len(ports) > 0 {
		g.peers[peer] = append(g.peers[peer], ports...)
	}
}

// addClauses adds the rules of all policies. When some rule permits everything to
// everyone it stops and returns the origins of all rules that do.
func (g *generator) addClauses() (everything []int32) {
	var blocks []block
	var toAny []span
	for _, p := range g.isolating {
		rules := p.Rules(g.direction)
		for i := range rules {
			r := &rules[i]
			ports := portsOf(r, g.origin(p, r.Index))
			if r.AnyPeer {
				toAny = append(toAny, ports...)
				continue // the other peers of the rule are among any
			}
			for _, s := range r.Sets {
				g.add(api.SetNet(s), ports)
			}
			for _, b := range r.Blocks {
				if b, ok := newBlock(b, ports); ok {
					blocks = append(blocks, b)
				}
			}
		}
	}
	g.any = newPortSet(toAny)
	if g.any.isAll() {
		return g.any[0].origins
	}
	g.addBlocks(blocks)
	return nil
}

// originsOf returns the origins of indexes.
func (g *generator) originsOf(indexes []int32) []api.Origin {
	origins := make([]api.Origin, len(indexes))
	for i, o := range indexes {
		origins[i] = g.origins[o]
	}
	return origins
}
