package configurator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Dump is the state of a Configurator for people. Everything is sorted, so equal
// states have equal dumps.
type Dump struct {
	Pods []PodDump `json:"pods"`
	Sets []SetDump `json:"sets"`
}

// PodDump is one pod. Directions are the pod's; a nil list does not restrict.
type PodDump struct {
	Pod      api.PodID      `json:"pod"`
	IPs      []netip.Addr   `json:"ips"`
	Policies []api.PolicyID `json:"policies"`
	Ingress  []RuleDump     `json:"ingress"`
	Egress   []RuleDump     `json:"egress"`
	Waiting  bool           `json:"waiting,omitempty"` // for other rules, see Configurator.Waiting
}

// RuleDump is one rule of a list, and the rules of policies that it comes from.
type RuleDump struct {
	Rule    api.ContivRule `json:"rule"`
	Origins []api.Origin   `json:"origins"`
}

// SetDump is one address set that has members. The members of a set that was made
// of blocks are listed, those of a selector are the processor's to list.
type SetDump struct {
	ID      api.SetID      `json:"id"`
	Derived bool           `json:"derived"`
	Meaning string         `json:"meaning,omitempty"` // what a derived set was made of
	Size    int            `json:"size"`
	Members []netip.Prefix `json:"members,omitempty"`
}

// Dump returns a copy of the state. Lists of rules are shared between the pods of
// the dump that have equal ones, and must not be changed.
func (c *Configurator) Dump() Dump {
	var d Dump
	rules := map[*list][]RuleDump{nil: nil}
	for _, id := range slices.SortedFunc(maps.Keys(c.pods), api.PodID.Compare) {
		pod := c.pods[id]
		policies := make([]api.PolicyID, len(pod.profile.policies))
		for i, p := range pod.profile.policies {
			policies[i] = p.ID
		}
		_, waits := c.waiting[id]
		d.Pods = append(d.Pods, PodDump{
			Pod: id, IPs: pod.ips, Policies: policies,
			Ingress: pod.profile.lists[api.Ingress].dump(rules), Egress: pod.profile.lists[api.Egress].dump(rules),
			Waiting: waits,
		})
	}
	d.Sets = c.dumpSets()
	return d
}

func (c *Configurator) dumpSets() []SetDump {
	sets := make([]SetDump, 0, len(c.sizes)+len(c.interner.derived))
	for id, size := range c.sizes {
		sets = append(sets, SetDump{ID: id, Size: size})
	}
	for id, s := range c.interner.derived {
		members := s.listed()
		sets = append(sets, SetDump{ID: id, Derived: true, Meaning: s.meaning(), Size: len(members), Members: members})
	}
	slices.SortFunc(sets, func(a, b SetDump) int { return cmp.Compare(a.ID, b.ID) })
	return sets
}

// dump returns the rules of a list, nil for nil, once per list.
func (l *list) dump(done map[*list][]RuleDump) []RuleDump {
	if d, ok := done[l]; ok {
		return d
	}
	d := make([]RuleDump, len(l.rules.Rules()))
	for i, r := range l.rules.Rules() {
		d[i] = RuleDump{r, l.rules.Origins(i)}
	}
	done[l] = d
	return d
}
