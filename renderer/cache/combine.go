package cache

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// combiner combines the own list of a pod with the opposite lists of its local peers.
type combiner struct {
	orientation      orientation
	inSet            func(api.SetID, netip.Addr) bool // staged membership
	opposites        []*list                          // opposite lists that have pods, sorted by digest
	restrictingPeers []restrictingPeer                // addresses of those pods, sorted
	scratch          []traffic.Traffic
}

// restrictingPeer is a local address whose pods have opposite lists.
type restrictingPeer struct {
	*address
	lists []int // indexes in combiner.opposites
}

// group is a set of peers that may exchange the same traffic with the pod.
type group struct {
	may       traffic.Traffic
	prefixes  []netip.Prefix
	lists     []*list     // lists whose rules restrict it
	restricts []bool      // by index: whether it is one of lists
	own       []ruleAbout // rules of the own list that apply to its first address
}

// blocks shares blocks between the pods of one Compute. With 110 pods of 20 kinds a local pod takes 8
// instead of 17 MB (BenchmarkLocalPodComesAndGoes), and as much more without the classes of verdicts.
type blocks map[blockKey]*block

// blockKey is what the table of a pod depends on, apart from what all pods have in common, which
// lists are closed among it: combiner.key, and its own list with the origins.
type blockKey struct {
	tables string
	own    *renderer.RuleList
}

// refresh updates the sorted opposite lists, and the addresses of the pods that have them.
func (c *combiner) refresh(opposites map[renderer.Digest]*list, addrs map[netip.Addr]*address) {
	c.opposites = c.opposites[:0]
	for _, l := range opposites {
		if len(l.pods) > 0 {
			c.opposites = append(c.opposites, l)
		}
	}
	slices.SortFunc(c.opposites, func(a, b *list) int { return slices.Compare(a.digest[:], b.digest[:]) })
	for n, l := range c.opposites {
		if l.index, l.ofAll = n, nil; l.tooLong {
			continue // nothing is said about its rules
		}
		seen := map[*renderer.RuleList]bool{}
		for _, p := range l.pods {
			if rules := c.orientation.oppRules(p.cfg); !seen[rules] {
				seen[rules] = true
				l.ofAll = rules.WithOrigins(l.ofAll)
			}
		}
	}
	c.restrictingPeers = c.restrictingPeers[:0]
	for _, a := range addrs {
		if lists := oppositesOf(a); len(lists) > 0 {
			c.restrictingPeers = append(c.restrictingPeers, restrictingPeer{a, lists})
		}
	}
	slices.SortFunc(c.restrictingPeers, func(a, b restrictingPeer) int { return a.addr.Compare(b.addr) })
}

// oppositesOf returns the sorted indexes of the opposite lists of an address.
func oppositesOf(a *address) []int {
	var out []int
	for _, p := range a.owners {
		if p.opp != nil {
			out = append(out, p.opp.index)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// build makes the local table of a pod.
//
// A pod is combined with itself, like with any other pod. Traffic of a pod to itself does not cross
// the vswitch under its own address, so this changes no verdict that matters, and pods with equal
// lists get equal tables.
func (c *combiner) build(p *pod, shared blocks) *block {
	key := blockKey{tables: p.key}
	if p.own != nil {
		key.own = p.own.inForce(c.orientation.ownRules(p.cfg))
	}
	b := shared[key]
	if b == nil {
		b = c.assemble(p)
		shared[key] = b
	}
	return b
}

// key identifies tables that are equal if no list is closed: the own list, and what all opposite
// lists say about the addresses of the pod.
func (c *combiner) key(p *pod) string {
	id := uint32(0)
	if p.own != nil {
		id = p.own.id
	}
	key := binary.BigEndian.AppendUint32(nil, id)
	for _, family := range families(p.addrs) {
		for _, a := range family {
			key = append(key, 0xff, byte(a.addr.BitLen()))
			if len(family) > 1 {
				key = append(key, a.addr.AsSlice()...)
			}
			for _, l := range c.opposites {
				if v := l.asked(a, c.inSet); v.allowed != traffic.Everything {
					key = binary.BigEndian.AppendUint32(append(key, 0), l.id)
					key = binary.BigEndian.AppendUint32(key, v.class)
				}
			}
		}
	}
	return string(key)
}

// families splits sorted addresses into IPv4 and IPv6 and leaves out empty parts.
func families(addrs []*address) [][]*address {
	i := slices.IndexFunc(addrs, func(a *address) bool { return !a.addr.Is4() })
	switch {
	case len(addrs) == 0:
		return nil
	case i <= 0:
		return [][]*address{addrs}
	}
	return [][]*address{addrs[:i], addrs[i:]}
}

// assemble puts the exceptions for local peers before the pod's own rules.
func (c *combiner) assemble(p *pod) *block {
	b := &block{}
	for _, family := range families(p.addrs) {
		found := make([][]group, len(family))
		uniform := true
		for i, a := range family {
			found[i] = c.exceptions(p, a)
			uniform = uniform && equalGroups(found[0], found[i])
		}
		if uniform {
			c.write(b, found[0], family[0], api.Net{})
			continue
		}
		for i, a := range family {
			c.write(b, found[i], a, api.AddrNet(a.addr))
		}
	}
	own := p.own.inForce(c.orientation.ownRules(p.cfg))
	switch exceptions := len(b.rules); {
	case p.own == nil && exceptions == 0:
		return b
	case p.own == nil:
		b.rules = append(b.rules, api.ContivRule{Action: api.Permit})
		b.origins = append(b.origins, nil)
	case exceptions == 0:
		b.rules, b.digest = own.Rules(), own.Digest()
	default:
		b.rules = append(b.rules, own.Rules()...)
	}
	for i := len(b.origins) + len(own.Rules()) - len(b.rules); p.own != nil && i < len(own.Rules()); i++ {
		b.origins = append(b.origins, own.Origins(i))
	}
	if b.digest == (renderer.Digest{}) {
		b.digest = renderer.DigestRules(b.rules)
	}
	return b
}

// exceptions returns the local peers to which less is permitted than the own list permits, or whose
// lists audit something. Peers are grouped by what is permitted, and groups are ordered by their
// first address.
func (c *combiner) exceptions(p *pod, a *address) []group {
	own := p.own
	theirs := c.scratch[:0]
	for _, l := range c.opposites {
		theirs = append(theirs, l.verdict(a, c.inSet).allowed)
	}
	c.scratch = theirs
	var out groups
	for _, q := range c.restrictingPeers {
		if q.addr.Is4() != a.addr.Is4() {
			continue
		}
		ours := traffic.Everything
		if own != nil {
			ours = own.verdict(q.address, c.inSet).allowed
		}
		// An address that several pods claim may do only what all of them may do.
		may, audited := ours, false
		for _, n := range q.lists {
			may = c.intersect(may, theirs[n])
			audited = audited || theirs[n].IsAudited()
		}
		if may != ours || audited { // what the peer audits is counted for its policies, too
			g := out.groupFor(may)
			if own != nil && g.prefixes == nil {
				g.own = c.ownRulesAbout(p, q.address)
			}
			c.addTo(g, q, theirs)
		}
	}
	for i := range out {
		out[i].prefixes = prefixes.Aggregate(out[i].prefixes)
	}
	return out
}

// groups is searched linearly: there are few groups.
type groups []group

// groupFor returns the group for some traffic; it adds the group when it is missing.
func (g *groups) groupFor(may traffic.Traffic) *group {
	for i := range *g {
		if (*g)[i].may == may {
			return &(*g)[i]
		}
	}
	*g = append(*g, group{may: may})
	return &(*g)[len(*g)-1]
}

// addTo adds an address to a group, together with the lists that restrict it.
func (c *combiner) addTo(g *group, q restrictingPeer, theirs []traffic.Traffic) {
	g.prefixes = append(g.prefixes, prefixes.Host(q.addr))
	if g.restricts == nil {
		g.restricts = make([]bool, len(theirs))
	}
	for _, n := range q.lists {
		if theirs[n] != traffic.Everything && !g.restricts[n] {
			g.restricts[n] = true
			g.lists = append(g.lists, c.opposites[n])
		}
	}
}

func equalGroups(a, b []group) bool {
	return slices.EqualFunc(a, b, func(x, y group) bool {
		return x.may == y.may && slices.Equal(x.prefixes, y.prefixes)
	})
}

// write appends the rules for groups. a is an address of the pod; own is the net of the pod that
// the rules must name.
func (c *combiner) write(b *block, groups []group, a *address, own api.Net) {
	ownPeer, oppPeer := c.orientation.ownPeer(), c.orientation.oppPeer()
	for _, g := range groups {
		rules := g.may.Rules()
		b.rules = slices.Grow(b.rules, len(g.prefixes)*len(rules))
		b.origins = slices.Grow(b.origins, len(g.prefixes)*len(rules))
		about, origins := c.oppRulesAbout(g.lists, a), make([][]api.Origin, len(rules))
		for i, r := range rules {
			origins[i] = originsOf(about, r)
			if r.Audit {
				origins[i] = mergedOrigins(origins[i], g.audited(r))
			}
		}
		for _, p := range g.prefixes {
			for i, r := range rules {
				r = oppPeer.set(ownPeer.set(r, api.Net{Prefix: p}), own)
				b.rules = append(b.rules, r)
				b.origins = append(b.origins, origins[i])
			}
		}
	}
}

// oppRulesAbout returns the rules of lists that apply to an address of the pod.
func (c *combiner) oppRulesAbout(lists []*list, a *address) (out []ruleAbout) {
	for _, l := range lists {
		for _, i := range l.verdict(a, c.inSet).matches.indexes() {
			out = append(out, ruleAbout{l.ofAll, int(i)})
		}
	}
	return out
}

// originsOf returns the sorted origins of the rules that an exception stems from: those with its
// action that match common traffic.
func originsOf(about []ruleAbout, r api.ContivRule) (out []api.Origin) {
	for _, a := range about {
		if rule := a.rule(); rule.Action == r.Action && rule.Audit == r.Audit && overlap(rule, r) {
			out = append(out, a.list.Origins(a.index)...)
		}
	}
	slices.SortFunc(out, api.Origin.Compare)
	return slices.Compact(out)
}

// ownRulesAbout returns the rules of a pod's own list that apply to an address.
func (c *combiner) ownRulesAbout(p *pod, a *address) (out []ruleAbout) {
	for _, i := range p.own.verdict(a, c.inSet).matches.indexes() {
		out = append(out, ruleAbout{c.orientation.ownRules(p.cfg), int(i)})
	}
	return out
}

// audited returns the origins of the rules of the own list that audit traffic of an exception.
func (g *group) audited(r api.ContivRule) (out []api.Origin) {
	for _, about := range g.own {
		if rule := about.rule(); rule.Audit && overlap(rule, r) {
			out = append(out, about.list.Origins(about.index)...)
		}
	}
	return out
}

// mergedOrigins returns the origins of both, sorted. Those of a are.
func mergedOrigins(a, b []api.Origin) []api.Origin {
	if slices.Equal(a, b) {
		return a
	}
	out := slices.Concat(a, b)
	slices.SortFunc(out, api.Origin.Compare)
	return slices.Compact(out)
}

// intersect returns the traffic that both sets permit.
func (c *combiner) intersect(a, b traffic.Traffic) traffic.Traffic {
	switch {
	case a == b || b == traffic.Everything:
		return a
	case a == traffic.Everything:
		return b
	}
	return traffic.Intersect(a, b)
}

// global makes the global table. It contains the opposite lists of all pods, each applied to the
// set of pods that have the list, and permits the rest.
func (c *combiner) global() *Table {
	if len(c.opposites) == 0 {
		return nil
	}
	n := 1
	for _, l := range c.opposites {
		n += len(l.inForce(l.origins).Rules())
	}
	t := &Table{Rules: make([]api.ContivRule, 0, n), Origins: make([][]api.Origin, 0, n)}
	for _, l := range c.opposites {
		t.Parts = append(t.Parts, len(t.Rules))
		origins := l.inForce(l.ofAll)
		for i, r := range l.inForce(l.origins).Rules() {
			t.Rules = append(t.Rules, c.orientation.ownPeer().set(r, api.SetNet(l.podsSet)))
			t.Origins = append(t.Origins, origins.Origins(i))
		}
	}
	t.Parts = append(t.Parts, len(t.Rules))
	t.Rules = append(t.Rules, api.ContivRule{Action: api.Permit})
	t.Origins = append(t.Origins, nil)
	t.Digest, t.Sets = renderer.DigestRules(t.Rules), setsOf(t.Rules)
	return t
}

// ruleAbout is a rule of a list.
type ruleAbout struct {
	list  *renderer.RuleList
	index int
}

func (r ruleAbout) rule() api.ContivRule { return r.list.Rules()[r.index] }

// overlap reports whether two rules match common traffic; it ignores addresses.
func overlap(a, b api.ContivRule) bool {
	return (a.Protocol == b.Protocol || a.Protocol == api.AnyProtocol || b.Protocol == api.AnyProtocol) &&
		overlapPorts(a.SrcPort, b.SrcPort) && overlapPorts(a.DstPort, b.DstPort)
}

func overlapPorts(a, b api.PortRange) bool {
	af, al := a.Bounds()
	bf, bl := b.Bounds()
	return af <= bl && bf <= al
}
