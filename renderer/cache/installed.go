package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// installed is the state that the dataplane has acknowledged.
type installed struct {
	tables map[renderer.Digest]*Table
	pods   map[api.PodID]installedPod
	owners map[netip.Addr][]api.PodID // sorted
	global *Table

	orientation orientation
	inSet       func(api.SetID, netip.Addr) bool // acknowledged membership
}

type installedPod struct {
	ips      []netip.Addr
	own, opp *renderer.RuleList
	table    renderer.Digest // zero for no table
}

func newInstalled(o orientation, inSet func(api.SetID, netip.Addr) bool) installed {
	return installed{
		orientation: o, inSet: inSet,
		tables: make(map[renderer.Digest]*Table),
		pods:   make(map[api.PodID]installedPod),
		owners: make(map[netip.Addr][]api.PodID),
	}
}

// table returns the table of a pod, or nil.
func (s *installed) table(id api.PodID) *Table { return s.tables[s.pods[id].table] }

func (s *installed) drop(id api.PodID) {
	for _, ip := range s.pods[id].ips {
		s.owners[ip] = slices.DeleteFunc(s.owners[ip], func(o api.PodID) bool { return o == id })
		if len(s.owners[ip]) == 0 {
			delete(s.owners, ip)
		}
	}
	delete(s.pods, id)
}

func (s *installed) add(id api.PodID, p installedPod) {
	s.pods[id] = p
	for _, ip := range p.ips {
		s.owners[ip] = append(s.owners[ip], id)
		slices.SortFunc(s.owners[ip], api.PodID.Compare)
	}
}

func (s *installed) evaluate(f api.Flow) []renderer.Decision {
	near, far := f.Dst, f.Src // near is the side whose pods have the local table
	if api.Direction(s.orientation) == api.Ingress {
		near, far = f.Src, f.Dst
	}
	owners := s.owners[near]
	if len(owners) == 0 {
		return s.decide(nil, s.global, f, s.oppOf(far))
	}
	var out []renderer.Decision
	for _, id := range owners {
		lists := append([]*renderer.RuleList{s.pods[id].own}, s.oppOf(far)...)
		out = s.decide(out, s.table(id), f, lists)
	}
	return out
}

// oppOf returns the opposite lists of the pods with an address.
func (s *installed) oppOf(a netip.Addr) []*renderer.RuleList {
	var out []*renderer.RuleList
	for _, id := range s.owners[a] {
		out = append(out, s.pods[id].opp)
	}
	return out
}

// decide appends the decision of a table; it does nothing without one. lists are the rules of the
// pods concerned. They know the origins better than the shared table does, including that there are
// none.
func (s *installed) decide(out []renderer.Decision, t *Table, f api.Flow, lists []*renderer.RuleList) []renderer.Decision {
	if t == nil {
		return out
	}
	d := renderer.Decision{Table: t.Name(), Rule: -1, Action: api.Deny}
	if i := firstMatch(t.Rules, f, s.inSet); i >= 0 {
		d.Rule, d.Match, d.Action = i, t.Rules[i], t.Rules[i].Action
	}
	known := false
	for _, l := range lists {
		if i := firstMatch(l.Rules(), f, s.inSet); i >= 0 && l.Rules()[i].Action == d.Action {
			d.Origins, known = append(d.Origins, l.Origins(i)...), true
		}
	}
	if !known && d.Rule >= 0 && t.Origins != nil {
		d.Origins = slices.Clone(t.Origins[d.Rule])
	}
	slices.SortFunc(d.Origins, api.Origin.Compare)
	d.Origins = slices.Compact(d.Origins)
	return append(out, d)
}

// firstMatch returns the index of the first rule that matches, or -1.
func firstMatch(rules []api.ContivRule, f api.Flow, inSet func(api.SetID, netip.Addr) bool) int {
	return slices.IndexFunc(rules, func(r api.ContivRule) bool { return r.Matches(f, inSet) })
}
