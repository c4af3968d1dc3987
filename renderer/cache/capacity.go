package cache

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
)

// Bound limits the entries that rules of NetworkPolicies take in a dataplane without address sets.
// Entries are counted before tables are built, as if no list were closed. Lists beyond a limit are
// closed: everything is denied in their direction. Which ones depends on the staged state only, by
// the rule of package capacity.
type Bound struct {
	// List is how many entries one list may take in one table, how many a table may have, and how
	// many rules of NetworkPolicies a list may have. A list of more rules is closed without being
	// looked at.
	List             int
	ListText         string // what one list may take, for reports; empty: List entries
	Namespace, Total int    // entries of all lists of a namespace's pods, and of all pods
	// Entries returns how many entries some rules become, or any number above List if there are
	// more. own is whether they are of the cache's orientation. If Entries is nil, only what the
	// combination with lists of local peers adds is counted.
	Entries func(rules []api.ContivRule, own bool, nets *Nets) int
	// Has reports whether a pod has entries of its own. If Has is nil, pods share those of equal
	// tables.
	Has func(api.PodID) bool
}

// listKey identifies a list in both caches of a Pair.
type listKey struct {
	direction api.Direction
	digest    renderer.Digest
}

// admission decides which lists are closed.
type admission struct {
	Bound
	bounded bool
	staged  *staged
	tables  map[*additions]*list // by demands
	use     capacity.Use
}

// bound sets the bound of an empty state; none is none.
func (x *admission) bound(s *staged, bounds []Bound) {
	x.staged = s
	for _, b := range bounds {
		x.Bound, x.bounded = b, true
		s.lists.most = b.List
	}
}

// additions are the entries that the combination with the lists of local peers adds to a table, if
// no list is closed. They depend on no members of sets but local addresses, so they are kept until
// the table is stale.
type additions struct {
	by  []addition // by opposite list
	own int        // those that count for the own list
	all int
}

// addition is what one opposite list adds.
type addition struct {
	list  *list
	all   int // entries
	takes int // those that count for the list
}

// combine counts what is added to the stale tables.
func (x *admission) combine() {
	c := &x.staged.combiner
	made := make(map[string]*additions)
	for _, p := range x.staged.stale.pods {
		p.key = c.key(p)
		if !x.bounded {
			continue
		}
		if made[p.key] == nil {
			made[p.key] = c.additions(p)
		}
		p.additions = made[p.key]
	}
}

// additions counts what local peers add to the table of a pod. What two lists permit in common takes
// about as many rules as both, and counts for the longer one: a namespace with short lists does not
// pay for others. Peers with one list have common origins, those of all rules that match; four take
// the memory of an entry, and there may be many more of them than entries.
func (c *combiner) additions(p *pod) *additions {
	out := &additions{}
	for _, a := range p.addrs {
		by := make([]addition, len(c.opposites))
		for _, q := range c.restrictingPeers {
			if q.addr.Is4() != a.addr.Is4() {
				continue
			}
			ours := verdict{allowed: traffic.Everything, rules: 1}
			if p.own != nil {
				if ours = p.own.asked(q.address, c.inSet); ours.allowed == traffic.Nothing {
					continue
				}
			}
			for _, n := range q.lists {
				v := c.opposites[n].asked(a, c.inSet)
				if v.allowed == traffic.Everything {
					continue
				}
				if by[n].list == nil {
					origins := v.matches.count() / 4
					by[n] = addition{c.opposites[n], origins, origins}
				}
				one := ours.rules + v.rules
				if by[n].all += one; p.own != nil && ours.rules > v.rules {
					out.own += one
				} else {
					by[n].takes += one
				}
			}
		}
		for _, x := range by {
			if x.list != nil {
				out.by = append(out.by, x)
				out.all += x.all
			}
		}
	}
	return out
}

// demand is what a list takes.
type demand struct {
	uses       int      // how often its entries count
	adds       int      // entries that the combination with local peers adds
	inTable    int      // entries of the largest table, if that is too large because of the list
	namespaces []string // of its pods
}

// demands counts what lists take. It returns what is added to each distinct table, by its own list.
// An own list counts once for each distinct table that has it, or for each pod with entries of its
// own; an opposite list once for the global table, or for each such pod.
func (x *admission) demands() map[*additions]*list {
	s := x.staged
	for l := range s.lists.all() {
		l.demand = demand{namespaces: l.namespaces[:0]}
	}
	seen, tables := make(map[string]bool), make(map[*additions]*list)
	for _, p := range s.pods {
		for _, l := range [2]*list{p.own, p.opp} {
			if l != nil && !slices.Contains(l.namespaces, p.id.Namespace) {
				l.namespaces = append(l.namespaces, p.id.Namespace)
			}
		}
		switch {
		case x.Has == nil:
			if p.opp != nil {
				p.opp.uses = 1
			}
			if seen[p.key] {
				continue
			}
			seen[p.key] = true
		case !x.Has(p.id):
			continue
		case p.opp != nil:
			p.opp.uses++
		}
		if p.own != nil {
			p.own.uses++
			p.own.adds += p.additions.own
		}
		for _, a := range p.additions.by {
			a.list.adds += a.takes
		}
		tables[p.additions] = p.own
	}
	return tables
}

// fit finds the lists that make tables too large: of an own list that is none, those that add most.
// The own list is never one of them.
func (x *admission) fit(tables map[*additions]*list) {
	for l := range x.staged.lists.all() {
		l.inTable = 0
	}
	if x.List == 0 {
		return
	}
	for t, own := range tables {
		left := x.List - t.all
		if own != nil {
			left -= min(x.entriesOf(own), x.List)
		}
		if left >= 0 {
			continue
		}
		by := slices.SortedFunc(slices.Values(t.by), func(a, b addition) int {
			return cmp.Or(cmp.Compare(b.all, a.all), slices.Compare(a.list.digest[:], b.list.digest[:]))
		})
		for _, a := range by {
			if left >= 0 {
				break
			}
			left += a.all
			a.list.inTable = x.List + 1
		}
	}
}

// maxMembers is how many members sets of one list may have, by the entries of a list: sorting and
// joining more to count entries takes long.
const maxMembers = 4

// entriesOf returns how many entries the rules of NetworkPolicies in a list take in one table, or
// one more than a list may have. It is kept until a set of the list changes: counting expands it.
func (x *admission) entriesOf(l *list) int {
	if x.Entries == nil || l.tooLong {
		return 0
	}
	if !l.sized {
		l.sized = true
		if rules, members := x.ofTenants(l); x.List > 0 && members > maxMembers*x.List {
			l.entries = x.List + 1
		} else {
			l.entries = x.Entries(rules, !l.isOpposite, NewNets(x.staged.sets.aggregated))
		}
	}
	return l.entries
}

// ofTenants returns the rules of NetworkPolicies in a list as its table has them, and the number of
// members of their sets.
func (x *admission) ofTenants(l *list) (rules []api.ContivRule, members int) {
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

// decide returns why lists must be closed.
func (x *admission) decide() map[listKey]string {
	if !x.bounded {
		return nil
	}
	if x.Has != nil || x.tables == nil || len(x.staged.changedPods) > 0 { // else a member of a set would cost twice as much
		x.tables = x.demands()
	}
	x.fit(x.tables)
	var lists []capacity.List[*list]
	for l := range x.staged.lists.all() {
		if len(l.namespaces) == 0 {
			continue
		}
		one := 0
		if l.uses > 0 {
			one = x.entriesOf(l)
		}
		lists = append(lists, capacity.List[*list]{
			Key: l, Cost: l.adds + l.uses*one, One: max(one, l.inTable, 1), Namespaces: l.namespaces, // 0 would be Cost
		})
	}
	limits := capacity.Limits{List: x.List, Namespace: x.Namespace, Total: x.Total}
	refused := capacity.Refused(lists, limits, func(a, b *list) int {
		return cmp.Or(slices.Compare(a.digest[:], b.digest[:]), cmp.Compare(x.keyOf(a).direction, x.keyOf(b).direction))
	})
	x.use = capacity.UseOf(lists, refused)
	why := make(map[listKey]string, len(refused))
	for l, r := range refused {
		why[x.keyOf(l)] = x.reason(l, r)
	}
	return why
}

// reason says why a list is closed, and what helps.
func (x *admission) reason(l *list, r capacity.Refusal) string {
	namespace := slices.Min(l.namespaces)
	switch {
	case r.Limit == capacity.OneNamespace:
		return fmt.Sprintf("the policies of namespace %s take more than %d entries in a dataplane without address sets, and this list is one of those that take most, so everything is denied: select fewer pods, or name fewer peers or ports", namespace, r.Most)
	case l.inTable > 0 && x.entriesOf(l) <= x.List:
		return fmt.Sprintf("together with the list of a local peer, this list of the policies of namespace %s takes more than %d entries in a dataplane without address sets, so everything is denied: name fewer ports, or select fewer pods", namespace, r.Most)
	}
	return fmt.Sprintf("a list of the policies of namespace %s takes more than %s in a dataplane without address sets, so everything is denied: name fewer peers or ports",
		namespace, cmp.Or(x.ListText, fmt.Sprintf("%d entries", r.Most)))
}

func (x *admission) keyOf(l *list) listKey {
	d := api.Direction(x.staged.orientation)
	if l.isOpposite {
		d = 1 - d
	}
	return listKey{d, l.digest}
}

// setClosed closes the given lists, and opens others. Pods that this concerns become stale.
func (x *admission) setClosed(why map[listKey]string) {
	s := x.staged
	for l := range s.lists.all() {
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

// Capacity returns what the lists that the last Compute saw take.
func (c *Cache) Capacity() []renderer.Capacity { return c.admission.capacity("entries") }

func (x *admission) capacity(resource string) []renderer.Capacity {
	return []renderer.Capacity{{
		Resource: resource, List: renderer.Share{Used: x.use.List, Most: x.List}, Of: x.use.Of,
		Namespace: renderer.Share{Used: x.use.Namespace, Most: x.Namespace}, Total: renderer.Share{Used: x.use.Total, Most: x.Total},
	}}
}
