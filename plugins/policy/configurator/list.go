package configurator

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// maxInline is the number of prefixes up to which rules name them one by one.
// What has more becomes an address set, so that the number of rules does not grow
// with the number of prefixes times that of ports.
const maxInline = 4

// addBlocks adds blocks as prefixes or derived sets. Blocks that lie in others are
// dropped twice: before they are united, so that they do not make sets larger, and
// after, because united blocks can cover others that single ones do not.
func (g *generator) addBlocks(blocks []block) {
	var inline []block
	for _, r := range regions(uncoveredBy(g.any, blocks)) {
		addrs, err := r.addrs.IPSet()
		if err != nil {
			continue // cannot be: all ranges are valid. No addresses, so closed.
		}
		ports := newPortSet(r.spans)
		prefixes, few := fewPrefixes(addrs)
		if !few {
			g.addSet(addrs, ports)
			continue
		}
		for _, p := range prefixes {
			inline = append(inline, block{cidr: p, ports: ports})
		}
	}
	for _, b := range uncovered(inline) {
		g.add(api.Net{Prefix: b.cidr}, b.ports)
	}
}

// uncoveredBy is uncovered with ports on which everything is covered.
func uncoveredBy(any portSet, blocks []block) []block {
	if len(any) == 0 {
		return uncovered(blocks)
	}
	kept := blocks[:0]
	for _, b := range uncovered(blocks) {
		if b.ports = b.ports.without(any); len(b.ports) > 0 {
			kept = append(kept, b)
		}
	}
	return kept
}

// fewPrefixes returns the prefixes of some addresses if they are few.
func fewPrefixes(addrs *netipx.IPSet) ([]netip.Prefix, bool) {
	if len(addrs.Ranges()) > maxInline {
		return nil, false // there is at least one prefix per range
	}
	prefixes := addrs.Prefixes()
	return prefixes, len(prefixes) <= maxInline
}

// addSet adds a derived set. Its ID is made of its ranges, so equal addresses are
// one set, whichever policies they come from. Of two sets with one ID the second
// is refused and permits nothing.
func (g *generator) addSet(addrs *netipx.IPSet, ports portSet) {
	id, members := rangesID(addrs.Ranges()), addrs.Prefixes()
	if other, taken := g.sets[id]; taken && !slices.Equal(other, members) {
		return
	}
	g.sets[id] = members
	g.add(api.SetNet(id), ports)
}

// rangesID derives the ID of a set from the canonical text of its ranges, which no
// selector's text looks like.
func rangesID(ranges []netipx.IPRange) api.SetID {
	text := make([]byte, 0, 8+32*len(ranges))
	text = append(text, "ranges"...)
	for _, r := range ranges {
		text = r.AppendTo(append(text, ' '))
	}
	return api.NewSetID(string(text))
}

// list returns the rules for everything that was added, in the order of their
// Compare: by peer, any last, and then by ports.
func (g *generator) list() *generated {
	g.peers[api.Net{}] = g.any
	list := &generated{
		rules:   make([]api.ContivRule, 0, len(g.peers)+1),
		origins: make([][]api.Origin, 0, len(g.peers)+1),
	}
	for _, peer := range slices.SortedFunc(maps.Keys(g.peers), api.Net.Compare) {
		ports := newPortSet(g.peers[peer])
		if !peer.IsAny() {
			ports = ports.without(g.any)
		}
		g.permit(list, peer, ports)
	}
	list.rules = append(list.rules, api.ContivRule{Action: api.Deny})
	list.origins = append(list.origins, g.isolation())
	for _, id := range slices.Sorted(maps.Keys(g.sets)) {
		list.sets = append(list.sets, addressSet{id, g.sets[id]})
	}
	return list
}

// permit appends the rules for one peer. This is where direction is flipped: of
// what reaches the pod the peer is the source, of what leaves it the destination.
func (g *generator) permit(list *generated, peer api.Net, ports portSet) {
	rule := api.ContivRule{Action: api.Permit, Src: peer}
	if g.direction == api.Egress {
		rule.Src, rule.Dst = rule.Dst, rule.Src
	}
	of := func(s span) api.ContivRule {
		rule.Protocol, rule.DstPort = s.protocol, s.portRange()
		return rule
	}
	// Two spans or more are newPortSet's own, so they may be reordered.
	slices.SortFunc(ports, func(a, b span) int { return of(a).Compare(of(b)) })
	for _, s := range ports {
		list.rules = append(list.rules, of(s))
		list.origins = append(list.origins, g.originsOf(s.origins))
	}
}

// isolation returns the origins of the trailing deny.
func (g *generator) isolation() []api.Origin {
	origins := make([]api.Origin, len(g.isolating))
	for i, p := range g.isolating {
		origins[i] = api.Origin{Policy: p.ID, Direction: g.direction, Rule: api.IsolationRule}
	}
	slices.SortFunc(origins, api.Origin.Compare)
	return slices.Compact(origins)
}
