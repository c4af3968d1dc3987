package secgroup

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// snapshot is the immutable outcome of the last Apply that readers see.
type snapshot struct {
	state      renderer.State
	unenforced []renderer.Unenforced
	byAddress  map[netip.Addr]*groupTables
	sets       map[api.SetID][]netip.Prefix // members of sets, and addresses of address groups
	tables     map[installed]*groupTables
}

// installed is a group and one of the contents from which its rules were made. Contents with equal
// rules may have other origins.
type installed struct {
	group   string
	content *content
}

// groupTables are the tables of a group: of traffic to and from its ports.
type groupTables struct {
	lists  [2]*renderer.RuleList
	tables [2]renderer.Table // by direction, without pods
}

// State implements renderer.Inspector. Connected reports whether Neutron answered the last Apply.
func (r *Renderer) State() *renderer.State { return &r.published.Load().state }

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// Explain returns the decisions of the groups of both ends about the first packet of a flow, as the
// last successful Apply installed them. Whether the backend of Neutron has applied them is known
// only to that.
func (r *Renderer) Explain(f api.Flow) (out []renderer.Decision) {
	s := r.published.Load()
	if f.Src == f.Dst {
		return nil
	}
	for d, addr := range [2]netip.Addr{api.Ingress: f.Dst, api.Egress: f.Src} {
		if e := s.byAddress[addr.Unmap()]; e != nil {
			out = append(out, s.decide(&e.tables[d], e.lists[d], f))
		}
	}
	slices.Reverse(out) // packets meet the source first
	return renderer.WithRenderer(r.Name(), out)
}

// decide evaluates one table; its last rule matches everything. The origins are those of the rule
// of the list that decides in the same way.
func (s *snapshot) decide(t *renderer.Table, l *renderer.RuleList, f api.Flow) renderer.Decision {
	inSet := func(id api.SetID, a netip.Addr) bool {
		return slices.ContainsFunc(s.sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
	}
	matches := func(r api.ContivRule) bool { return r.Matches(f, inSet) }
	i := slices.IndexFunc(t.Rules, matches)
	out := renderer.Decision{Table: t.Name, Rule: i, Match: t.Rules[i], Action: t.Rules[i].Action, Origins: t.Origins[i]}
	if of := slices.IndexFunc(l.Rules(), matches); of >= 0 && l.Rules()[of].Action == out.Action {
		out.Origins = l.Origins(of)
	}
	return out
}

// publish publishes the outcome of an Apply. While what Neutron holds is not known, readers see
// what it held.
func (r *Renderer) publish(err error) {
	s := &snapshot{unenforced: r.reads.unenforced}
	if old := r.published.Load(); old != nil {
		*s = *old
		s.unenforced = r.reads.unenforced
	}
	s.state = renderer.State{
		Renderer: r.Name(), Connected: r.existing != nil, Err: err, Pending: r.reads.pending, Drift: maps.Clone(r.reads.drift), Tables: s.state.Tables,
		Capacity: r.admission.capacity(r.options.MaxRules), Closed: renderer.ClosedIn(s.unenforced),
	}
	if r.existing != nil && r.wanted != nil {
		s.fill(r)
	}
	r.published.Store(s)
}

// fill sets what is installed.
func (s *snapshot) fill(r *Renderer) {
	before := s.tables
	s.tables, s.byAddress, s.state.Tables = map[installed]*groupTables{}, map[netip.Addr]*groupTables{}, nil
	s.fillSets(r)
	pods, first := map[string][]api.PodID{}, map[string]*groupTables{}
	for _, id := range slices.Sorted(maps.Keys(r.wanted.ports)) {
		key := installed{r.groups[r.wanted.ports[id]], r.wanted.contents[id]}
		if key.group == "" || key.content == nil {
			continue
		}
		e := cmp.Or(s.tables[key], before[key])
		if e == nil {
			e = newGroupTables(key)
		}
		s.tables[key], first[key.group] = e, cmp.Or(first[key.group], e)
		for _, a := range r.existing.ports[id].IPs {
			s.byAddress[a.Unmap()] = e
		}
		if pod, ok := r.wanted.owners[id]; ok {
			pods[key.group] = append(pods[key.group], pod)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(pods)) { // a table without pods would apply to all
		for _, t := range first[group].tables {
			t.Pods = slices.Compact(slices.SortedFunc(slices.Values(pods[group]), api.PodID.Compare))
			s.state.Tables = append(s.state.Tables, t)
		}
	}
}

// fillSets copies the members of the sets that have changed.
func (s *snapshot) fillSets(r *Renderer) {
	old := s.sets
	s.sets = make(map[api.SetID][]netip.Prefix, len(r.desired.sets))
	for id := range r.desired.sets {
		if s.sets[id] = old[id]; r.reads.changed[id] || old[id] == nil {
			s.sets[id] = r.desired.members(id)
		}
	}
	for _, a := range r.existing.addrs {
		s.sets[api.NewSetID(a.Name)] = a.Addresses
	}
	clear(r.reads.changed)
}

// newGroupTables makes the tables of a group.
func newGroupTables(of installed) *groupTables {
	group, c := of.group, of.content
	e := &groupTables{lists: c.lists}
	sorted := slices.SortedFunc(maps.Keys(c.rules), Rule.Compare)
	for d := range e.tables {
		t := renderer.Table{Name: group + "/" + api.Direction(d).String(), Objects: []string{"security group " + group}}
		for _, rule := range sorted {
			if rule.Direction == api.Direction(d) {
				t.Rules = append(t.Rules, rule.contiv())
				t.Origins = append(t.Origins, c.rules[rule])
			}
		}
		t.Entries = len(t.Rules)
		t.Rules = append(t.Rules, api.ContivRule{Action: api.Deny})
		t.Origins = append(t.Origins, c.deny[d])
		e.tables[d] = t
	}
	return e
}

// contiv returns the rule as a six-tuple. An address group is a set.
func (r Rule) contiv() api.ContivRule {
	out := api.ContivRule{Action: api.Permit, Protocol: r.Protocol}
	if r.First > 0 {
		out.DstPort = api.Ports(r.First, r.Last)
	}
	remote := api.PrefixNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	switch {
	case r.AddressGroup != "":
		remote = api.SetNet(api.NewSetID(r.AddressGroup))
	case r.Remote.IsValid():
		remote = api.PrefixNet(r.Remote)
	case r.IPv6:
		remote = api.PrefixNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	if out.Dst = remote; r.Direction == api.Ingress {
		out.Src, out.Dst = remote, api.Net{}
	}
	return out
}
