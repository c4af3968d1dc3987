package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// generated is what the policies of one direction come to.
type generated struct {
	rules   []api.ContivRule
	origins [][]api.Origin // of rules[i]
	sets    []addressSet   // derived sets that rules name, by ID
	refused []refusal
}

// refusal says which rules are denied as a whole, and why.
type refusal struct {
	origins []api.Origin
	reason  string
}

// addressSet is a set of addresses that stands for many prefixes in rules, or for
// what two sets have in common.
type addressSet struct {
	id      api.SetID
	members []netip.Prefix // the fewest, in order; nil with common
	common  *common        // nil for a set that does not change
}

// generate translates the policies of a pod in one direction (the pod's) into an
// ordered list of rules, whose first match decides. It is pure: the list depends
// on nothing but the arguments, and not on the order of anything in them that has
// none.
//
// It returns nil when nothing restricts the direction. Otherwise the list holds
// what the admin tier decides, in its order, then the fewest permits that it can
// find for the rules of all NetworkPolicies that isolate the pod, those of its own
// node first, and one deny of the rest; without isolation what the baseline tier
// decides, and a permit of the rest. What rules of the admin tier pass on is
// decided where they stand, see delegate.
//
// A NetworkPolicy with a rule that does anything but allow is not translated: its
// direction is closed, but for the node.
//
// What others permit too that have an address of the pod is what the list permits.
func generate(d api.Direction, policies []*api.ContivPolicy, allowNode bool, shared ...api.Sharing) *generated {
	return generateOrClose("", d, policies, allowNode, shared...)
}

// generateOrClose is generate, but for a reason that is not empty: then the list denies everything.
func generateOrClose(why string, d api.Direction, policies []*api.ContivPolicy, allowNode bool, shared ...api.Sharing) *generated {
	inputs := inputsOf(d, policies, shared)
	if !slices.ContainsFunc(inputs, func(in input) bool { return !in.isOpen() }) {
		return nil
	}
	g := newGenerator(d, allowNode, inputs)
	if why != "" {
		return g.closedList(why)
	}
	all := outcome{action: api.Permit}
	for _, in := range inputs {
		all = g.both(all, g.outcome(in).apart(in.apart))
	}
	return g.list(all)
}

// input is what one direction of some policies consists of, in order of evaluation.
type input struct {
	node      []api.Net           // the own node, as a peer
	apart     netip.Prefix        // the family that is not restricted; invalid for none
	admin     []*api.ContivPolicy // with rules in the direction
	isolating []*api.ContivPolicy // NetworkPolicies
	baseline  []*api.ContivPolicy // with rules in the direction
	closed    bool                // a NetworkPolicy could forbid
}

func collect(d api.Direction, policies []*api.ContivPolicy) input {
	in := input{node: []api.Net{api.SetNet(api.NodeSet)}}
	for _, p := range policies {
		switch {
		case p.Tier == api.TierNetworkPolicy:
			if p.Isolates(d) {
				in.isolating = append(in.isolating, p)
				in.closed = in.closed || slices.ContainsFunc(p.Rules(d), func(r api.PolicyRule) bool { return r.Action != api.RuleAllow })
			}
		case len(p.Rules(d)) == 0:
		case p.Tier == api.TierAdmin:
			in.admin = append(in.admin, p)
		default:
			in.baseline = append(in.baseline, p)
		}
	}
	slices.SortFunc(in.admin, (*api.ContivPolicy).Compare)
	slices.SortFunc(in.baseline, (*api.ContivPolicy).Compare)
	return in
}

func (in input) isOpen() bool { return len(in.admin)+len(in.isolating)+len(in.baseline) == 0 }

// generator makes one list.
type generator struct {
	input     // that is being translated
	direction api.Direction
	allowNode bool
	inputs    []input                  // all
	origins   []api.Origin             // of everything that can decide, sorted
	sets      map[api.SetID]addressSet // derived sets
	collided  bool                     // two derived sets have one ID
	expanded  int                      // spans that delegate made
	named     int                      // origins of these
	refused   []refusal
}

func newGenerator(d api.Direction, allowNode bool, inputs []input) *generator {
	g := &generator{direction: d, allowNode: allowNode, inputs: inputs, sets: map[api.SetID]addressSet{}}
	for _, in := range inputs {
		for _, p := range in.isolating {
			for _, rule := range []int{api.NodeRule, api.IsolationRule} {
				g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: d, Rule: rule})
			}
		}
		for _, policies := range [][]*api.ContivPolicy{in.admin, in.isolating, in.baseline} {
			for _, p := range policies {
				for _, r := range p.Rules(d) {
					g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: d, Rule: r.Index})
				}
			}
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

// originsWith returns the indexes of the origins of what isolates with a rule that is
// none.
func (g *generator) originsWith(rule int) []int32 {
	indexes := make([]int32, len(g.isolating))
	for i, p := range g.isolating {
		indexes[i] = g.origin(p, rule)
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// originsOf returns the origins of indexes.
func (g *generator) originsOf(indexes []int32) []api.Origin {
	if len(indexes) == 1 { // as a rule of an ordered tier has
		i := indexes[0]
		return g.origins[i : i+1 : i+1]
	}
	origins := make([]api.Origin, len(indexes))
	for i, o := range indexes {
		origins[i] = g.origins[o]
	}
	return origins
}
