package cache

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// MatchGroups returns the groups that match, each once, in no particular order. In every namespace
// it scans the shortest list of groups that a requirement of the selector allows.
func (c *Cache) MatchGroups(q intent.GroupQuery) iter.Seq2[intent.GroupID, *intent.Group] {
	return func(yield func(intent.GroupID, *intent.Group) bool) {
		try := func(id intent.GroupID) bool {
			g := c.groups.list[id].def
			if q.Port != (api.PortName{}) && !g.Has(q.Port) || !q.Pods.Matches(g.Labels) {
				return true
			}
			return yield(id, g)
		}
		switch {
		case q.Namespace != "":
			if n, ok := c.namespaces.byName[q.Namespace]; ok {
				c.namespaces.list[n].each(q.Pods, try)
			}
		case q.Namespaces != nil:
			c.namespaces.each(q.Namespaces, func(n *namespace) bool { return n.each(q.Pods, try) })
		case q.Port != (api.PortName{}):
			eachID(c.groups.byPort[q.Port], try)
		default:
			for n := range c.namespaces.list {
				if !c.namespaces.list[n].each(q.Pods, try) {
					return
				}
			}
		}
	}
}

// each calls yield for the groups of a namespace that a selector may match, until
// it returns false.
func (n *namespace) each(sel *intent.Selector, yield func(intent.GroupID) bool) bool {
	if n.postings != nil {
		if r, size, ok := n.postings.candidates(sel); ok && size < len(n.groups) {
			return n.postings.each(r, yield)
		}
	}
	return eachID(n.groups, yield)
}

// MatchNamespaces returns the names of the known namespaces that a selector
// matches, sorted.
func (c *Cache) MatchNamespaces(sel *intent.Selector) []string {
	var names []string
	c.namespaces.each(sel, func(n *namespace) bool {
		names = append(names, n.name)
		return true
	})
	slices.Sort(names)
	return names
}

// AppendAddresses appends the addresses of a group's pods, in no particular order; an address of
// two pods is appended twice.
func (c *Cache) AppendAddresses(dst []netip.Addr, id intent.GroupID) []netip.Addr {
	var buf [1]netip.Addr
	for _, i := range c.groups.list[id].pods {
		if v4 := *c.pods.v4.at(i); v4 != 0 {
			dst = append(dst, addr4(v4))
			continue
		}
		dst = append(dst, c.pods.addrs(i, &buf)...)
	}
	return dst
}

// PodCount returns the number of pods of a group.
func (c *Cache) PodCount(id intent.GroupID) int { return len(c.groups.list[id].pods) }

// PodsOf returns the pods of a group, sorted.
func (c *Cache) PodsOf(id intent.GroupID) []api.PodID {
	g := &c.groups.list[id]
	ids := make([]api.PodID, 0, len(g.pods))
	for _, i := range g.pods {
		ids = append(ids, api.PodID{Namespace: c.namespaces.list[g.ns].name, Name: c.pods.list.at(i).name})
	}
	slices.SortFunc(ids, api.PodID.Compare)
	return ids
}

// Policies returns the policies that select the pods of a group, sorted by ID. It depends only on
// the group's namespace and the labels of both.
func (c *Cache) Policies(id intent.GroupID) []*intent.Policy {
	g := &c.groups.list[id]
	ns := &c.namespaces.list[g.ns]
	specs := c.policies.subjects.append(nil, ns.labels, g.def.Labels)
	if ns.policies != nil {
		specs = slices.AppendSeq(specs, ns.policies.Matching(g.def.Labels))
	}
	slices.SortFunc(specs, func(a, b *intent.Policy) int { return a.ID.Compare(b.ID) })
	return specs
}

// Holders returns the groups of the pods that currently have an address: several if the address is
// shared.
func (c *Cache) Holders(a netip.Addr) []intent.GroupID {
	var ids []intent.GroupID
	c.pods.eachWithAddress(a, func(i uint32) { ids = append(ids, c.pods.list.at(i).group) })
	return ids
}

// PodsAt returns the pods that currently have an address, in no particular order.
func (c *Cache) PodsAt(a netip.Addr) []intent.Pod {
	var pods []intent.Pod
	c.pods.eachWithAddress(a, func(i uint32) { pods = append(pods, c.pods.view(i, c.pods.addrs(i, new([1]netip.Addr)))) })
	return pods
}

func (x *pods) eachWithAddress(a netip.Addr, found func(i uint32)) {
	x.byAddr.find(hashAddr(a), func(i uint32) bool {
		if x.hasAddress(i, a) {
			found(i)
		}
		return false
	})
}

// SubjectsDiffer reports whether the subjects of cluster-scoped policies distinguish a namespace
// with labels a from one with labels b; nil labels mean an unknown namespace.
func (c *Cache) SubjectsDiffer(a, b intent.Labels) bool {
	in := map[*subjectScope]bool{}
	for sc := range c.policies.subjects.scopesOf(a) {
		in[sc] = true
	}
	n := 0
	for sc := range c.policies.subjects.scopesOf(b) {
		if !in[sc] {
			return true
		}
		n++
	}
	return n != len(in)
}

// MatchNodes returns the nodes that a selector selects, in no particular order. It scans every
// node, so it is meant for new selectors.
func (c *Cache) MatchNodes(sel *intent.Selector) iter.Seq[*intent.Node] {
	return func(yield func(*intent.Node) bool) {
		for _, n := range c.nodes {
			if sel.Matches(n.Labels) && !yield(n.Node) {
				return
			}
		}
	}
}

// NodeAddresses returns the addresses in a Node object, sorted; none if the node is not known.
func (c *Cache) NodeAddresses(name string) []netip.Addr { return c.nodes.addresses(name) }
