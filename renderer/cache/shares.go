package cache

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/shares"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
)

// Bound limits the entries that rules of NetworkPolicies take in a dataplane without address sets.
// Entries are counted before tables are built. Lists beyond their namespace's share are closed:
// everything is denied in their direction. Which lists are closed depends on the staged state only.
type Bound struct {
	Namespace, Node int // entries of all lists of a namespace's pods, and of all pods
	// Entries returns how many entries some rules become, or any number above Namespace if there
	// are more. own is whether they are of the cache's orientation. If Entries is nil, only what
	// the combination with lists of local peers adds is counted.
	Entries func(rules []api.ContivRule, own bool, nets *Nets) int
	// Has reports whether a pod has entries of its own. If Has is nil, pods share those of equal
	// tables. Call Recount when its result changes.
	Has func(api.PodID) bool
}

// listKey identifies a list in both caches of a Pair.
type listKey struct {
	direction api.Direction
	digest    renderer.Digest
}

// closedRules are in force in place of a closed list.
var closedRules = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// inForce returns the rules that are in force for a list; asked are those of one of its pods.
func (l *list) inForce(asked *renderer.RuleList) *renderer.RuleList {
	if l != nil && l.closed != "" {
		return closedRules
	}
	return asked
}

// weight is what the table of some pods would take if no list were closed. Pods with the same key
// would share their table.
type weight struct {
	own     *list
	adds    map[*list]int // entries that lists add to it by the combination with local peers
	counted int           // number of the count that it is part of
	uses    int           // how often it counts
}

// weights are those of all pods.
type weights struct {
	Bound
	cache  *Cache
	of     map[string]*weight // by key
	counts int
	rules  map[traffic.Traffic]int // memoized: how many rules express it
	why    map[listKey]string      // why lists of this cache exceed the bound
	closes bool                    // some list is closed
}

// bound sets the bound of an empty cache; none is none.
func (x *weights) bound(c *Cache, bounds []Bound) {
	for _, b := range bounds {
		*x = weights{Bound: b, cache: c, of: make(map[string]*weight), rules: make(map[traffic.Traffic]int)}
	}
}

// Recount makes the next Compute look again at which pods have entries.
func (c *Cache) Recount() { c.stale.any = true }

// weigh counts what the tables of the stale pods would take.
func (x *weights) weigh() {
	if x.of == nil {
		return
	}
	c := x.cache
	made := make(map[string]bool)
	for _, p := range c.stale.pods {
		key := c.combiner.key(p, c.combiner.judged)
		if p.own != nil {
			key = string(binary.BigEndian.AppendUint32([]byte(key), p.own.id))
		}
		w := x.of[key]
		if w == nil {
			w = &weight{}
			x.of[key] = w
		}
		if p.weight = w; !made[key] {
			made[key] = true
			w.own, w.adds = p.own, make(map[*list]int)
			for _, a := range p.addrs {
				x.weighAt(w, a)
			}
		}
	}
}

// weighAt counts the exceptions for local peers that a table has at an address of its pod. What two
// lists permit in common takes about as many rules as both. These count for the longer one. Peers
// with one list have common origins, those of all rules that match; four take as much as an entry.
func (x *weights) weighAt(w *weight, a *address) {
	met, c := make(map[*list]bool), &x.cache.combiner
	for _, q := range c.restrictingPeers {
		if q.addr.Is4() != a.addr.Is4() {
			continue
		}
		ours := traffic.Everything
		if w.own != nil {
			if ours = c.judged(w.own, q.address).allowed; ours == traffic.Nothing {
				continue
			}
		}
		for _, n := range q.lists {
			l := c.opposites[n]
			theirs := c.judged(l, a)
			if theirs.allowed == traffic.Everything {
				continue
			}
			if !met[l] {
				met[l] = true
				w.adds[l] += theirs.matches.count() / 4
			}
			here, there := x.rulesOf(ours), x.rulesOf(theirs.allowed)
			if w.own != nil && here > there {
				l = w.own
			}
			w.adds[l] += here + there
		}
	}
}

// rulesOf returns how many rules express some traffic.
func (x *weights) rulesOf(t traffic.Traffic) int {
	n, known := x.rules[t]
	if !known {
		if len(x.rules) >= maxMemo {
			clear(x.rules)
		}
		n = len(t.Rules())
		x.rules[t] = n
	}
	return n
}

// entriesOf returns how many entries the rules of NetworkPolicies in a list take in one table.
func (x *weights) entriesOf(l *list, nets *Nets) int {
	if x.Entries == nil {
		return 0
	}
	if !l.sized {
		var rules []api.ContivRule
		for i, r := range l.rules {
			if !isOfTenants(l.origins.Origins(i)) {
				continue
			}
			if l.isOpposite && x.Has == nil {
				r = x.cache.orientation.ownPeer().set(r, api.SetNet(l.podsSet))
			}
			rules = append(rules, r)
		}
		l.entries, l.sized = x.Entries(rules, !l.isOpposite, nets), true
	}
	return l.entries
}

// isOfTenants reports whether a rule counts: not if it comes from admin policies only.
func isOfTenants(origins []api.Origin) bool {
	return slices.ContainsFunc(origins, func(o api.Origin) bool { return o.Policy.Kind == api.NetworkPolicy })
}

// resize forgets the entries of lists that name changed sets.
func (x *weights) resize() {
	c := x.cache
	for id := range c.stale.sets {
		for l := range c.lists.naming[id] {
			l.sized = false
		}
	}
	for _, l := range c.lists.opposites {
		if _, changed := c.stale.sets[l.podsSet]; changed {
			l.sized = false
		}
	}
	clear(c.stale.sets)
}

// excess returns why lists must be closed.
func (x *weights) excess() map[listKey]string {
	if x.of == nil || !x.cache.stale.any {
		return x.why
	}
	x.resize()
	takes, owners := x.count()
	total := 0
	for _, n := range takes {
		total += n
	}
	x.why = nil
	if total <= min(x.Namespace, x.Node) {
		return nil
	}
	x.why = make(map[listKey]string)
	for l, share := range shares.Exceeded(x.Namespace, x.Node, takes, owners) {
		x.why[x.keyOf(l)] = fmt.Sprintf("the policies of namespace %s take more than %d entries in a dataplane without address sets, and this list more than its part, so everything is denied: select fewer pods, or name fewer ports", owners[l][0], share)
	}
	return x.why
}

func (x *weights) keyOf(l *list) listKey {
	d := api.Direction(x.cache.orientation)
	if l.isOpposite {
		d = 1 - d
	}
	return listKey{d, l.digest}
}

// count returns what lists take, and the sorted namespaces of their pods.
func (x *weights) count() (takes map[*list]int, owners map[*list][]string) {
	c := x.cache
	takes, owners = make(map[*list]int), make(map[*list][]string)
	x.counts++
	now, nets := x.counts, NewNets(c.Members)
	has := make(map[*list]int) // pods of opposite lists that have entries of their own
	for _, p := range c.pods {
		w, uses := p.weight, 1
		if x.Has != nil && !x.Has(p.id) {
			uses = 0
		}
		if w.counted != now {
			w.counted, w.uses = now, 0
		}
		if w.uses += uses; x.Has == nil {
			w.uses = 1
		}
		for _, l := range [2]*list{p.own, p.opp} {
			if l != nil && !slices.Contains(owners[l], p.id.Namespace) {
				owners[l] = append(owners[l], p.id.Namespace)
			}
		}
		if p.opp != nil {
			has[p.opp] += uses
		}
	}
	for _, of := range owners {
		slices.Sort(of)
	}
	maps.DeleteFunc(x.of, func(_ string, w *weight) bool { return w.counted != now })
	for _, w := range x.of {
		if w.own != nil && w.uses > 0 {
			takes[w.own] += w.uses * x.entriesOf(w.own, nets)
		}
		for l, n := range w.adds {
			takes[l] += w.uses * n
		}
	}
	for l, pods := range has {
		if x.Has == nil {
			pods = 1
		}
		if pods > 0 {
			takes[l] += pods * x.entriesOf(l, nets)
		}
	}
	maps.DeleteFunc(takes, func(l *list, _ int) bool { return len(owners[l]) == 0 })
	return takes, owners
}

// setClosed closes the given lists, and opens others. Pods that this concerns become stale.
func (x *weights) setClosed(why map[listKey]string) {
	if len(why) == 0 && !x.closes {
		return
	}
	x.closes = len(why) > 0
	c := x.cache
	for _, all := range [2]map[renderer.Digest]*list{c.lists.owns, c.lists.opposites} {
		for _, l := range all {
			now := why[x.keyOf(l)]
			if was := l.closed; was == now {
				continue
			} else if l.closed = now; (was == "") == (now == "") {
				continue
			}
			for _, p := range l.pods {
				c.mark(p)
			}
			if l.isOpposite { // the table of every pod may have exceptions for its pods
				c.stale.global = true
				for _, p := range c.pods {
					c.mark(p)
				}
			}
		}
	}
}

// Refused returns the policies whose lists are closed, without their rules.
func (c *Cache) Refused() (out []renderer.Unenforced) {
	if !c.weights.closes {
		return nil
	}
	for _, p := range c.pods {
		for _, l := range [2]*list{p.own, p.opp} {
			if l == nil || l.closed == "" {
				continue
			}
			asked := c.orientation.ownRules(p.cfg)
			if l.isOpposite {
				asked = c.orientation.oppRules(p.cfg)
			}
			for _, o := range l.policies(asked) {
				out = append(out, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: l.closed, Pods: 1})
			}
		}
	}
	return out
}

// policies returns the policies of the rules that pods asked for; equal lists may come from others.
func (l *list) policies(asked *renderer.RuleList) []api.Origin {
	out, known := l.named[asked]
	if known {
		return out
	}
	seen := make(map[api.Origin]bool)
	for i := range asked.Rules() {
		for _, o := range asked.Origins(i) {
			seen[api.Origin{Policy: o.Policy, Direction: o.Direction, Rule: api.IsolationRule}] = true
		}
	}
	out = slices.Collect(maps.Keys(seen))
	if l.named == nil || len(l.named) > len(l.pods) {
		l.named = make(map[*renderer.RuleList][]api.Origin)
	}
	l.named[asked] = out
	return out
}
