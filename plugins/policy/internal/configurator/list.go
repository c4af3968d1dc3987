package configurator

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// maxRules is the maximum number of rules in a list: peers times ports, summed over the rules of
// policies. A list takes 16 bytes per rule, and 104 more if a dataplane asks for Rules. 100
// policies at the limits of OVN-Kubernetes for one policy yield 1.3 million.
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
		if w.section(s); w.decided[anyPeer].isAll() {
			return w.finish()
		}
	}
	w.list.Write(api.ContivRule{Action: o.action, Audit: o.audit}, w.sidesOf(anyPeer), w.from(o.origins))
	return w.finish()
}

// writer writes a list.
type writer struct {
	*generator
	list    renderer.RuleWriter
	decided []covered               // by the sections so far, by peer
	sides   []int                   // by peer, plus one; 0: no rule names the peer. Rows name sides by number (ADR 0089)
	several map[string][]api.Origin // by their indexes; rows of one origin list share it (ADR 0089)
	key     []byte
}

func newWriter(g *generator, rules int) *writer {
	n := len(g.peers.nets)
	w := &writer{
		generator: g, decided: make([]covered, n), sides: make([]int, n),
		several: map[string][]api.Origin{},
	}
	w.list.Reserve(rules+1, n)
	return w
}

// maxDecided is how many spans per peer are recorded as decided. Beyond that, later rules are
// written even if they can never match: keeping very long lists of spans sorted costs more than it
// saves.
const maxDecided = 256

// section appends the rules of a section. Peers that were named together share what is decided
// about them.
func (w *writer) section(s section) {
	order := w.peers.disjoint(s.traffic)
	any := order.portsOf(anyPeer)
	if len(order) > 1 {
		order = order.byPeer()
		slices.SortFunc(order, func(a, b product) int { return w.peers.compare(a.peers[0], b.peers[0]) })
	}
	for _, p := range order {
		sorted := p.ports.inOrder()
		var before, after covered   // of the previous peer
		ports := sorted             // likewise
		for i, n := range p.peers { // any is the last
			if i == 0 || !before.isSlice(w.decided[n]) {
				before, ports = w.decided[n], sorted
				if n != anyPeer {
					ports = without(ports, any)
				}
				ports = without(ports, w.decided[anyPeer], before)
				if after = before; len(ports) > 0 && (len(before) < maxDecided || ports.isAll()) {
					after = slices.Clone(before).with(ports)
				}
			}
			w.rules(s, n, ports)
			w.decided[n] = after
		}
	}
}

// rules appends the rules for one peer.
func (w *writer) rules(s section, n peer, ports portSet) {
	if len(ports) == 0 {
		return
	}
	sides, rule := w.sidesOf(n), api.ContivRule{Action: s.action, Audit: s.audit}
	for _, s := range ports {
		rule.Protocol, rule.DstPort = s.protocol, s.portRange()
		w.list.Write(rule, sides, w.from(s.origins))
	}
}

// sidesOf returns the two sides of rules for a peer. It converts the direction: the peer is the
// source of what reaches the pod, and the destination of what leaves it.
func (w *writer) sidesOf(n peer) int {
	if w.sides[n] == 0 {
		src, dst := w.peers.nets[n], api.Net{}
		if w.direction == api.Egress {
			src, dst = dst, src
		}
		w.sides[n] = w.list.Sides(src, dst) + 1
	}
	return w.sides[n] - 1
}

// from returns the origins with these indexes. Equal ones are the same slice.
func (w *writer) from(indexes []int32) []api.Origin {
	if len(indexes) == 1 { // as for a rule of an ordered tier
		return w.originsOf(indexes)
	}
	w.key = w.key[:0]
	for _, i := range indexes {
		w.key = binary.LittleEndian.AppendUint32(w.key, uint32(i))
	}
	of, known := w.several[string(w.key)]
	if !known {
		of = w.originsOf(indexes)
		w.several[string(w.key)] = of
	}
	return of
}

// finish returns the list, with the derived sets to which the rules refer.
func (w *writer) finish() *generated {
	named := map[api.SetID]bool{}
	for n, sides := range w.sides {
		named[w.peers.nets[n].Set] = named[w.peers.nets[n].Set] || sides > 0
	}
	out := &generated{rules: w.list.Finish(), refused: w.refused}
	for _, id := range slices.Sorted(maps.Keys(w.sets)) {
		if named[id] {
			out.sets = append(out.sets, w.sets[id])
		}
	}
	return out
}
