package configurator

import (
	"fmt"
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

// addBlocks adds blocks as prefixes or derived sets, but for what any peer may.
// Blocks that lie in others are dropped twice: before they are united, so that
// they do not make sets larger, and after, because united blocks can cover others
// that single ones do not.
func (g *generator) addBlocks(t traffic, any portSet, blocks []block) {
	var inline []block
	for _, r := range regions(uncoveredBy(any, blocks)) {
		addrs, err := r.addrs.IPSet()
		if err != nil {
			continue // cannot be: all ranges are valid. No addresses, so closed.
		}
		ports := newPortSet(r.spans)
		prefixes, few := fewPrefixes(addrs)
		if !few {
			if net, ok := g.setOf(addrs); ok {
				t.add(net, ports)
			}
			continue
		}
		for _, p := range prefixes {
			inline = append(inline, block{cidr: p, ports: ports})
		}
	}
	for _, b := range uncovered(inline) {
		t.add(api.Net{Prefix: b.cidr}, b.ports)
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

// setOf returns a derived set. Its ID is made of its ranges, so equal addresses are
// one set, whichever policies they come from. Of two sets with one ID the second
// is refused.
func (g *generator) setOf(addrs *netipx.IPSet) (api.Net, bool) {
	s := addressSet{id: rangesID(addrs.Ranges()), members: addrs.Prefixes()}
	return g.keep(s)
}

// keep notes a derived set, which rules may name then.
func (g *generator) keep(s addressSet) (api.Net, bool) {
	if other, taken := g.sets[s.id]; taken && !s.equal(other) {
		g.collided = true
		return api.Net{}, false
	}
	g.sets[s.id] = s
	return api.SetNet(s.id), true
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

// list returns the rules of all sections, in the order of the sections, and within
// one by peer, any last, and then by ports. What earlier sections decide is left
// out. It returns nil when nothing is denied.
//
// A list of ordered tiers in which two derived sets have one ID is closed: leaving
// out a rule could open it. So is one that several pods have a say in.
func (g *generator) list(o outcome) *generated {
	if g.collided && (len(g.inputs) > 1 || len(g.admin)+len(g.baseline) > 0) {
		return g.closedList("two of the address sets that it needs have one ID, so everything is denied: change a network or selector a little")
	}
	denies := func(s section) bool { return s.action == api.Deny }
	if o.action == api.Permit && !slices.ContainsFunc(o.sections, denies) {
		return nil
	}
	n := o.sections.rules()
	if n > maxRules {
		return g.closedList(fmt.Sprintf("with it a list has %d rules, the limit is %d, so everything is denied: name fewer ports for fewer peers", n, maxRules))
	}
	w := newWriter(g, n)
	for _, s := range o.sections {
		if w.section(s); w.decided[api.Net{}].isAll() {
			return w.finish()
		}
	}
	w.list.rules = append(w.list.rules, api.ContivRule{Action: o.action})
	w.list.origins = append(w.list.origins, g.originsOf(o.origins))
	return w.finish()
}

// maxRules is how many rules a list may have: peers times ports, summed over the rules of policies.
// A list takes 120 bytes for each. 100 policies at the limits that OVN-Kubernetes has for one make
// 1.3 million.
const maxRules = 1 << 21

// rules is how many rules sections come to, or more.
func (s sections) rules() (n int) {
	for _, x := range s {
		for _, spans := range x.traffic {
			n += len(spans)
		}
	}
	return n
}

// closedList denies everything.
func (g *generator) closedList(reason string) *generated {
	var all []api.Origin
	for _, in := range g.inputs {
		for _, p := range slices.Concat(in.admin, in.isolating, in.baseline) {
			all = append(all, api.Origin{Policy: p.ID, Direction: g.direction, Rule: api.IsolationRule})
		}
	}
	return &generated{
		rules: []api.ContivRule{{Action: api.Deny}}, origins: [][]api.Origin{nil},
		refused: []refusal{{all, reason}},
	}
}

// writer writes a list.
type writer struct {
	*generator
	list    *generated
	decided map[api.Net]portSet // by the sections so far
}

func newWriter(g *generator, rules int) *writer {
	n := rules + 1
	return &writer{
		generator: g, decided: map[api.Net]portSet{},
		list: &generated{refused: g.refused, rules: make([]api.ContivRule, 0, n), origins: make([][]api.Origin, 0, n)},
	}
}

// maxDecided is how many spans of a peer are remembered as decided. Beyond that later
// rules are written down even if they can never match: to keep very long lists of spans
// in order takes longer than it saves.
const maxDecided = 256

// section appends the rules of a section.
func (w *writer) section(s section) {
	any := newPortSet(s.traffic[api.Net{}])
	written := make(map[api.Net]portSet, len(s.traffic))
	for _, peer := range slices.SortedFunc(maps.Keys(s.traffic), api.Net.Compare) {
		ports := any
		if !peer.IsAny() {
			ports = newPortSet(s.traffic[peer]).without(any)
		}
		ports = ports.without(w.decided[api.Net{}], w.decided[peer])
		w.rules(s.action, peer, ports)
		written[peer] = ports
	}
	for peer, ports := range written {
		if len(w.decided[peer]) < maxDecided || ports.isAll() {
			w.decided[peer] = w.decided[peer].with(ports)
		}
	}
}

// rules appends the rules for one peer. This is where direction is flipped: of what
// reaches the pod the peer is the source, of what leaves it the destination.
func (w *writer) rules(action api.Action, peer api.Net, ports portSet) {
	rule := api.ContivRule{Action: action, Src: peer}
	if w.direction == api.Egress {
		rule.Src, rule.Dst = rule.Dst, rule.Src
	}
	of := func(s span) api.ContivRule {
		rule.Protocol, rule.DstPort = s.protocol, s.portRange()
		return rule
	}
	if len(ports) > 1 {
		ports = slices.SortedFunc(slices.Values(ports), func(a, b span) int { return of(a).Compare(of(b)) })
	}
	for _, s := range ports {
		w.list.rules = append(w.list.rules, of(s))
		w.list.origins = append(w.list.origins, w.originsOf(s.origins))
	}
}

// finish adds the derived sets that the rules name.
func (w *writer) finish() *generated {
	named := map[api.SetID]bool{}
	for _, r := range w.list.rules {
		named[r.Src.Set], named[r.Dst.Set] = true, true
	}
	for _, id := range slices.Sorted(maps.Keys(w.sets)) {
		if named[id] {
			w.list.sets = append(w.list.sets, w.sets[id])
		}
	}
	return w.list
}
