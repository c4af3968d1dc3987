package configurator

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// input is one direction of some policies, in order of evaluation.
type input struct {
	node      []api.Net           // the own node, as a peer
	apart     netip.Prefix        // the unrestricted family; invalid if there is none
	admin     []*api.ContivPolicy // with rules in the direction
	isolating []*api.ContivPolicy // NetworkPolicies
	baseline  []*api.ContivPolicy // with rules in the direction
	closed    bool                // a NetworkPolicy has a rule that does not allow
}

func collect(d api.Direction, policies []*api.ContivPolicy) input {
	in := input{node: []api.Net{api.SetNet(api.NodeSet)}}
	for _, p := range policies {
		switch {
		case p.Tier == api.TierNetworkPolicy:
			if p.Isolates(d) {
				in.isolating = append(in.isolating, p)
				in.closed = in.closed || hasOddRule(p, d)
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

// hasOddRule reports whether a NetworkPolicy has a rule that does not allow.
func hasOddRule(p *api.ContivPolicy, d api.Direction) bool {
	return slices.ContainsFunc(p.Rules(d), func(r api.PolicyRule) bool { return r.Action != api.RuleAllow })
}

func (in input) isOpen() bool { return len(in.admin)+len(in.isolating)+len(in.baseline) == 0 }

// isAudited reports whether an input has policies in audit mode.
func (in input) isAudited() bool {
	return slices.ContainsFunc(slices.Concat(in.admin, in.isolating, in.baseline), func(p *api.ContivPolicy) bool { return p.Audit })
}

// generator builds one list.
type generator struct {
	input     // in translation
	direction api.Direction
	allowNode bool
	inputs    []input                  // all
	origins   []api.Origin             // of everything that can decide, sorted
	sets      map[api.SetID]addressSet // derived sets
	peers     peers
	collided  bool // two derived sets have one ID
	expanded  int  // number of spans that delegate created
	named     int  // origins of these
	refused   []refusal
}

// manyPeers is how many peers have memory from the beginning: rules that name more often name the
// same ones.
const manyPeers = 1 << 10

func newGenerator(d api.Direction, allowNode bool, inputs []input) *generator {
	g := &generator{direction: d, allowNode: allowNode, inputs: inputs, sets: map[api.SetID]addressSet{}}
	rules, n := 0, 0 // n: peers
	for _, in := range inputs {
		for _, policies := range [][]*api.ContivPolicy{in.admin, in.isolating, in.baseline} {
			for _, p := range policies {
				rules += 2 + len(p.Rules(d))
			}
		}
	}
	g.origins = make([]api.Origin, 0, rules)
	for _, in := range inputs {
		for _, policies := range [][]*api.ContivPolicy{in.admin, in.isolating, in.baseline} {
			for _, p := range policies {
				if p.Tier == api.TierNetworkPolicy {
					for _, rule := range []int{api.NodeRule, api.IsolationRule} {
						g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: d, Rule: rule})
					}
				}
				rules := p.Rules(d)
				for i := range rules {
					g.origins = append(g.origins, api.Origin{Policy: p.ID, Direction: d, Rule: rules[i].Index})
					n += len(rules[i].Sets)
				}
			}
		}
	}
	g.peers = newPeers(2 + min(n, manyPeers))
	if slices.ContainsFunc(inputs, input.isAudited) {
		for _, o := range slices.Clone(g.origins) {
			o.Audit = true
			g.origins = append(g.origins, o)
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

// originsWith returns the indexes of the origins of the isolating policies with a rule number that
// is not in the spec.
func (g *generator) originsWith(rule int) []int32 {
	indexes := make([]int32, len(g.isolating))
	for i, p := range g.isolating {
		indexes[i] = g.origin(p, rule)
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// originsOf returns the origins with these indexes.
func (g *generator) originsOf(indexes []int32) []api.Origin {
	if len(indexes) == 1 { // as for a rule of an ordered tier
		i := indexes[0]
		return g.origins[i : i+1 : i+1]
	}
	origins := make([]api.Origin, len(indexes))
	for i, o := range indexes {
		origins[i] = g.origins[o]
	}
	return origins
}

// generated is the translation of the policies of one direction.
type generated struct {
	rules   *renderer.RuleList
	sets    []addressSet // derived sets that rules name, by ID
	refused []refusal
}

// refusal names rules that are denied as a whole, and why.
type refusal struct {
	origins []api.Origin
	reason  string
}

// refuse drops the derived sets for which no returns true, and the permits that refer to them. A
// deny that refers to one denies every peer instead.
func (g *generated) refuse(no func(addressSet) bool) (any bool) {
	refused := map[api.SetID]bool{}
	for _, s := range g.sets {
		if no(s) {
			refused[s.id] = true
		}
	}
	if len(refused) == 0 {
		return false
	}
	g.sets = slices.DeleteFunc(g.sets, func(s addressSet) bool { return refused[s.id] })
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i, r := range g.rules.All() {
		if refused[r.Src.Set] || refused[r.Dst.Set] {
			if r.Action == api.Permit {
				continue
			}
			r.Src, r.Dst = api.Net{}, api.Net{}
		}
		rules, origins = append(rules, r), append(origins, g.rules.Origins(i))
	}
	g.rules = renderer.NewRuleList(rules, origins)
	return true
}

// closedList returns a list that denies everything.
func (g *generator) closedList(reason string) *generated {
	var all []api.Origin
	for _, in := range g.inputs {
		for _, p := range slices.Concat(in.admin, in.isolating, in.baseline) {
			all = append(all, api.Origin{Policy: p.ID, Direction: g.direction, Rule: api.IsolationRule})
		}
	}
	return &generated{
		rules:   renderer.NewRuleList([]api.ContivRule{{Action: api.Deny}}, nil),
		refused: []refusal{{all, reason}},
	}
}

// setOf returns the derived set of some addresses. Its ID is derived from its ranges, so equal
// addresses are one set, regardless of the policies.
func setOf(addrs *netipx.IPSet) addressSet {
	return addressSet{id: rangesID(addrs.Ranges()), members: addrs.Prefixes()}
}

// keep registers a derived set, to which rules may then refer. Of two sets with one ID the second
// is refused.
func (g *generator) keep(s addressSet) (api.Net, bool) {
	if other, taken := g.sets[s.id]; taken && !s.equal(other) {
		g.collided = true
		return api.Net{}, false
	}
	g.sets[s.id] = s
	return api.SetNet(s.id), true
}

// rangesID derives the ID of a set from the canonical text of its ranges, which no selector's text
// can equal.
func rangesID(ranges []netipx.IPRange) api.SetID {
	text := make([]byte, 0, 8+32*len(ranges))
	text = append(text, "ranges"...)
	for _, r := range ranges {
		text = r.AppendTo(append(text, ' '))
	}
	return api.NewSetID(string(text))
}
