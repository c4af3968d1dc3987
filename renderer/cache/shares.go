package cache

import (
	"cmp"
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
	// List is how many entries one list may take, and how many rules of NetworkPolicies it may
	// have. A list of more rules is closed without being looked at. 0 is Namespace.
	List int
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

// weights are those of all pods.
type weights struct {
	Bound
	staged *staged
	of     map[string]*weight // by key
	counts int
	tally
	rules  map[traffic.Traffic]int // memoized: how many rules express it
	why    map[listKey]string      // why lists of this cache exceed the bound
	closes bool                    // some list is closed because of why
}

// tally is the result of a count, which changes of sets update.
type tally struct {
	recount bool               // pods must be counted again
	uses    map[*list]int      // how often the entries of a list count
	adds    map[*list]int      // entries that the combination with local peers adds
	owners  map[*list][]string // sorted namespaces of the pods of a list
}

// bound sets the bound of an empty state; none is none.
func (x *weights) bound(s *staged, bounds []Bound) {
	for _, b := range bounds {
		b.List = cmp.Or(b.List, b.Namespace)
		*x = weights{Bound: b, staged: s, of: make(map[string]*weight), rules: make(map[traffic.Traffic]int), tally: tally{recount: true}}
		s.lists.most = b.List
	}
}

// weigh counts what the tables of the stale pods would take.
func (x *weights) weigh() {
	if x.of == nil {
		return
	}
	s := x.staged
	made := make(map[string]bool)
	for _, p := range s.stale.pods {
		key := s.combiner.key(p, s.combiner.judged)
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
	c := &x.staged.combiner
	there, adds, own := make([]int, len(c.opposites)), make([]int, len(c.opposites)), 0 // by opposite list
	for n, l := range c.opposites {
		if there[n] = -1; c.judged(l, a).allowed != traffic.Everything {
			there[n] = x.rulesOf(c.judged(l, a).allowed)
		}
		adds[n] = -1
	}
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
		here := x.rulesOf(ours)
		for _, n := range q.lists {
			if there[n] < 0 {
				continue
			}
			adds[n] = max(adds[n], 0)
			if w.own != nil && here > there[n] {
				own += here + there[n]
			} else {
				adds[n] += here + there[n]
			}
		}
	}
	for n, l := range c.opposites {
		if adds[n] >= 0 {
			w.adds[l] += adds[n] + c.judged(l, a).matches.count()/4
		}
	}
	if own > 0 {
		w.adds[w.own] += own
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

// maxMembers is how many members sets of one list may have, by the entries of a list: sorting and
// joining more to count entries takes long.
const maxMembers = 4

// entriesOf returns how many entries the rules of NetworkPolicies in a list take in one table, or
// one more than a list may have.
func (x *weights) entriesOf(l *list) int {
	if x.Entries == nil || l.tooLong {
		return 0
	}
	if !l.sized {
		l.entries, l.sized = x.List+1, true
		if rules, members := x.ofTenants(l); members <= maxMembers*x.List {
			l.entries = min(l.entries, x.Entries(rules, !l.isOpposite, NewNets(x.staged.sets.aggregated)))
		}
	}
	return l.entries
}

// ofTenants returns the rules of NetworkPolicies in a list as its table has them, and the number of
// members of their sets.
func (x *weights) ofTenants(l *list) (rules []api.ContivRule, members int) {
	rules = make([]api.ContivRule, 0, len(l.rules))
	named := make(map[api.SetID]bool)
	for i, r := range l.rules {
		if !isOfTenants(l.origins.Origins(i)) {
			continue
		}
		for _, n := range [2]api.Net{r.Src, r.Dst} {
			if s := x.staged.sets.all[n.Set]; s != nil && !named[n.Set] {
				named[n.Set] = true
				members += s.len()
			}
		}
		if l.isOpposite && x.Has == nil {
			r = x.staged.orientation.ownPeer().set(r, api.SetNet(l.podsSet))
		}
		rules = append(rules, r)
	}
	return rules, members
}

// resize forgets the entries of lists that name changed sets.
func (x *weights) resize() {
	s := x.staged
	for id := range s.stale.sets {
		for l := range s.lists.naming[id] {
			l.sized = false
		}
	}
	for _, l := range s.lists.opposites {
		if _, changed := s.stale.sets[l.podsSet]; changed {
			l.sized = false
		}
	}
	clear(s.stale.sets)
}

// excess returns why lists must be closed.
func (x *weights) excess() map[listKey]string {
	if x.of == nil || !x.staged.stale.any {
		return x.why
	}
	x.resize()
	if x.recount || len(x.staged.changedPods) > 0 {
		x.count()
	}
	x.why = make(map[listKey]string)
	takes, total := maps.Clone(x.adds), 0
	for l, n := range x.uses {
		one := x.entriesOf(l)
		if x.List > 0 && one > x.List {
			x.why[x.keyOf(l)] = fmt.Sprintf("a list of the policies of namespace %s takes more than %d entries in a dataplane without address sets, so everything is denied: name fewer peers or ports", x.owners[l][0], x.List)
			continue
		}
		takes[l] += n * one
	}
	for _, n := range takes {
		total += n
	}
	if total <= min(x.Namespace, x.Node) {
		return x.why
	}
	for l, share := range shares.Exceeded(x.Namespace, x.Node, takes, x.owners) {
		x.why[x.keyOf(l)] = fmt.Sprintf("the policies of namespace %s take more than %d entries in a dataplane without address sets, and this list more than its part, so everything is denied: select fewer pods, or name fewer peers or ports", x.owners[l][0], share)
	}
	return x.why
}

func (x *weights) keyOf(l *list) listKey {
	d := api.Direction(x.staged.orientation)
	if l.isOpposite {
		d = 1 - d
	}
	return listKey{d, l.digest}
}

// count counts the pods and tables of lists.
func (x *weights) count() {
	s := x.staged
	x.tally = tally{uses: make(map[*list]int), adds: make(map[*list]int), owners: make(map[*list][]string)}
	x.counts++
	now := x.counts
	for _, p := range s.pods {
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
			if l != nil && !slices.Contains(x.owners[l], p.id.Namespace) {
				x.owners[l] = append(x.owners[l], p.id.Namespace)
			}
		}
		switch {
		case p.opp == nil || uses == 0:
		case x.Has == nil:
			x.uses[p.opp] = 1
		default:
			x.uses[p.opp]++
		}
	}
	for _, of := range x.owners {
		slices.Sort(of)
	}
	maps.DeleteFunc(x.of, func(_ string, w *weight) bool { return w.counted != now })
	for _, w := range x.of {
		if w.own != nil && w.uses > 0 {
			x.uses[w.own] += w.uses
		}
		for l, n := range w.adds {
			x.adds[l] += w.uses * n
		}
	}
	without := func(l *list, _ int) bool { return len(x.owners[l]) == 0 }
	maps.DeleteFunc(x.uses, without)
	maps.DeleteFunc(x.adds, without)
}

// setClosed closes the given lists, and opens others. Pods that this concerns become stale.
func (x *weights) setClosed(why map[listKey]string) {
	if len(why) == 0 && !x.closes {
		return
	}
	x.closes = len(why) > 0
	s := x.staged
	for _, all := range [2]map[renderer.Digest]*list{s.lists.owns, s.lists.opposites} {
		for _, l := range all {
			now := why[x.keyOf(l)]
			if was := l.closed; was == now || l.tooLong {
				continue
			} else if l.closed = now; (was == "") == (now == "") {
				continue
			}
			for _, p := range l.pods {
				s.mark(p)
			}
			if l.isOpposite { // the table of every pod may have exceptions for its pods
				s.stale.global = true
				for _, p := range s.pods {
					s.mark(p)
				}
			}
		}
	}
}
