package configurator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// maxRules is the maximum number of rules in a list: peers times ports, summed over the rules of
// policies. A list takes 120 bytes per rule. 100 policies at the limits of OVN-Kubernetes for one
// policy yield 1.3 million.
const maxRules = 1 << 21

// list returns the rules of all sections, in the order of the sections, and within one by peer, any
// last, and then by ports. It leaves out what earlier sections decide. It returns nil if nothing is
// denied or audited.
//
// A list of ordered tiers with two derived sets of one ID is closed: leaving out a rule could open
// it. The same holds for a list to which several pods contribute.
func (g *generator) list(o outcome) *generated {
	if g.collided && (len(g.inputs) > 1 || len(g.admin)+len(g.baseline) > 0) {
		return g.closedList("two of the address sets that it needs have one ID, so everything is denied: change a network or selector a little")
	}
	decides := func(s section) bool { return s.action == api.Deny || s.audit }
	if o.action == api.Permit && !o.audit && !slices.ContainsFunc(o.sections, decides) {
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
	w.list.rules = append(w.list.rules, api.ContivRule{Action: o.action, Audit: o.audit})
	w.list.origins = append(w.list.origins, g.originsOf(o.origins))
	return w.finish()
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

// maxDecided is how many spans per peer are recorded as decided. Beyond that, later rules are
// written even if they can never match: keeping very long lists of spans sorted costs more than it
// saves.
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
		w.rules(s, peer, ports)
		written[peer] = ports
	}
	for peer, ports := range written {
		if len(w.decided[peer]) < maxDecided || ports.isAll() {
			w.decided[peer] = w.decided[peer].with(ports)
		}
	}
}

// rules appends the rules for one peer. It converts the direction: the peer is the source of what
// reaches the pod, and the destination of what leaves it.
func (w *writer) rules(s section, peer api.Net, ports portSet) {
	rule := api.ContivRule{Action: s.action, Audit: s.audit, Src: peer}
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
	w.pause(1 + len(ports))
	for _, s := range ports {
		w.list.rules = append(w.list.rules, of(s))
		w.list.origins = append(w.list.origins, w.originsOf(s.origins))
	}
}

// finish adds the derived sets to which the rules refer.
func (w *writer) finish() *generated {
	named := map[api.SetID]bool{}
	w.pause(len(w.list.rules) / 4)
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
