package configurator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Dump is the state of a Configurator for users. Everything is sorted, so equal states have equal
// dumps.
type Dump struct {
	Pods []PodDump `json:"pods"`
	Sets []SetDump `json:"sets"`
}

// PodDump describes one pod. Directions are seen from the pod; a nil list does not restrict.
type PodDump struct {
	Pod      api.PodID          `json:"pod"`
	IPs      []netip.Addr       `json:"ips"`
	Policies []api.PolicyID     `json:"policies"`
	Ingress  *renderer.RuleList `json:"ingress"`
	Egress   *renderer.RuleList `json:"egress"`
}

// SetDump describes an address set that has members. It lists the members of sets built from
// blocks; the processor lists those of selectors.
type SetDump struct {
	ID      api.SetID      `json:"id"`
	Derived bool           `json:"derived"`
	Meaning string         `json:"meaning,omitempty"` // what a derived set was made of
	Size    int            `json:"size"`
	Members []netip.Prefix `json:"members,omitempty"`
}

// Dump returns the state. Its lists of rules are those that renderers received; they are immutable.
func (c *Configurator) Dump() Dump {
	var d Dump
	for _, id := range slices.SortedFunc(maps.Keys(c.pods), api.PodID.Compare) {
		pod := c.pods[id]
		d.Pods = append(d.Pods, PodDump{
			Pod: id, IPs: pod.ips, Policies: idsOf(pod.profile.policies),
			Ingress: pod.profile.lists[api.Ingress].shown(), Egress: pod.profile.lists[api.Egress].shown(),
		})
	}
	d.Sets = c.dumpSets()
	return d
}

func (c *Configurator) dumpSets() []SetDump {
	sets := make([]SetDump, 0, len(c.sizes)+len(c.interner.derived.byID))
	for id, size := range c.sizes {
		sets = append(sets, SetDump{ID: id, Size: size})
	}
	for id, s := range c.interner.derived.byID {
		members := s.listed()
		sets = append(sets, SetDump{ID: id, Derived: true, Meaning: s.meaning(), Size: len(members), Members: members})
	}
	slices.SortFunc(sets, func(a, b SetDump) int { return cmp.Compare(a.ID, b.ID) })
	return sets
}

func idsOf(policies []*api.ContivPolicy) []api.PolicyID {
	out := make([]api.PolicyID, len(policies))
	for i, p := range policies {
		out[i] = p.ID
	}
	return out
}
