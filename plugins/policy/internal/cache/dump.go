package cache

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// PodInfo describes one pod of the cache, for users.
type PodInfo struct {
	ID         api.PodID       `json:"id"`
	State      string          `json:"state"` // "live", "host network" or "finished"
	Node       string          `json:"node,omitempty"`
	IPs        []netip.Addr    `json:"ips,omitempty"`    // of live pods only
	Labels     intent.Labels   `json:"labels,omitempty"` // of live pods only
	NamedPorts []api.NamedPort `json:"namedPorts,omitempty"`
}

// NamespaceInfo describes one namespace of the cache, for users.
type NamespaceInfo struct {
	Name     string        `json:"name"`
	Known    bool          `json:"known"` // its Namespace object has arrived
	Labels   intent.Labels `json:"labels,omitempty"`
	Pods     int           `json:"pods"`
	Groups   int           `json:"groups"`
	Policies int           `json:"policies"`
}

var podStateNames = [...]string{podLive: "live", podHostNetwork: "host network", podFinished: "finished"}

// Pods returns all pods, sorted by ID.
func (c *Cache) Pods() []PodInfo {
	out := make([]PodInfo, 0, c.pods.list.len()-len(c.pods.free))
	for i := range uint32(c.pods.list.len()) {
		p := c.pods.list.at(i)
		if p.name == "" {
			continue
		}
		info := PodInfo{
			ID:    api.PodID{Namespace: c.namespaces.list[p.ns].name, Name: p.name},
			State: podStateNames[p.state],
			Node:  c.pods.hosts.list[p.host].name,
		}
		if p.group != noGroup {
			var buf [1]netip.Addr
			g := c.groups.list[p.group].def
			info.IPs = slices.Clone(c.pods.addrs(i, &buf))
			info.Labels, info.NamedPorts = g.Labels, g.NamedPorts
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b PodInfo) int { return a.ID.Compare(b.ID) })
	return out
}

// Namespaces returns all namespaces that are known or referred to by pods or policies, sorted by
// name.
func (c *Cache) Namespaces() []NamespaceInfo {
	out := make([]NamespaceInfo, 0, len(c.namespaces.byName))
	for _, n := range c.namespaces.byName {
		ns := &c.namespaces.list[n]
		out = append(out, NamespaceInfo{
			Name: ns.name, Known: ns.labels != nil, Labels: ns.labels,
			Pods: ns.pods, Groups: len(ns.groups), Policies: ns.nPolicy,
		})
	}
	slices.SortFunc(out, func(a, b NamespaceInfo) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// PolicySpecs returns all policies, sorted by ID.
func (c *Cache) PolicySpecs() []*intent.Policy {
	out := make([]*intent.Policy, 0, len(c.policies.list)-len(c.policies.free)+len(c.policies.cluster))
	for _, p := range c.policies.cluster {
		out = append(out, p.spec)
	}
	for i := range c.policies.list {
		if spec := c.policies.list[i].spec; spec != nil {
			out = append(out, spec)
		}
	}
	slices.SortFunc(out, func(a, b *intent.Policy) int { return a.ID.Compare(b.ID) })
	return out
}
