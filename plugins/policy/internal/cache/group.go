package cache

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// group is a group and its pods.
type group struct {
	def  *intent.Group // nil: the slot is free
	ns   uint32
	pods []uint32 // unordered; a pod knows its position
}

// groups are the groups of pods with equal namespace, labels and ports.
type groups struct {
	ns     *namespaces
	list   []group
	index  hashIndex
	free   []intent.GroupID
	byPort map[api.PortName][]intent.GroupID
}

func hashGroup(ns string, labels intent.Labels, ports []api.NamedPort) uint32 {
	h := hashString(0, ns)
	for i := range labels {
		h = hashString(hashString(h, labels[i].Key), labels[i].Value)
	}
	for i := range ports {
		h = hashString(h+uint64(ports[i].Number)<<8+uint64(ports[i].Protocol)+1, ports[i].Name)
	}
	return fold(h)
}

// groupFor returns the group for pods with these properties, and creates it if needed. The labels and
// ports may be scratch.
func (x *groups) groupFor(n uint32, labels intent.Labels, ports []api.NamedPort, w update) intent.GroupID {
	name := x.ns.list[n].name
	hash := hashGroup(name, labels, ports)
	id, ok := x.index.find(hash, func(i uint32) bool {
		g := &x.list[i]
		return g.ns == n && slices.Equal(g.def.Labels, labels) && slices.Equal(g.def.NamedPorts, ports)
	})
	if ok {
		return intent.GroupID(id)
	}
	gid := alloc(&x.list, &x.free)
	def := &intent.Group{Namespace: name, Labels: slices.Clone(labels), NamedPorts: slices.Clone(ports)}
	x.list[gid] = group{def: def, ns: n}
	x.index.insert(hash, uint32(gid))
	x.file(gid)
	w.GroupAdded(gid, def)
	return gid
}

// drop removes a group without pods.
func (x *groups) drop(gid intent.GroupID, w update) {
	g := &x.list[gid]
	def, n := g.def, g.ns
	x.unfile(gid)
	x.index.remove(hashGroup(def.Namespace, def.Labels, def.NamedPorts), uint32(gid))
	*g = group{}
	x.free = append(x.free, gid)
	w.GroupRemoved(gid)
	x.ns.tidy(n)
}

func (x *groups) file(gid intent.GroupID) {
	g := &x.list[gid]
	ns := &x.ns.list[g.ns]
	ns.groups = insertID(ns.groups, gid)
	switch {
	case ns.postings != nil:
		ns.postings.add(g.def.Labels, gid)
	case len(ns.groups) > indexedGroups:
		p := newPostings[intent.GroupID]()
		for _, o := range ns.groups {
			p.add(x.list[o].def.Labels, o)
		}
		ns.postings = &p
	}
	for name := range portNames(g.def) {
		x.byPort[name] = insertID(x.byPort[name], gid)
	}
}

func (x *groups) unfile(gid intent.GroupID) {
	g := &x.list[gid]
	ns := &x.ns.list[g.ns]
	ns.groups = removeID(ns.groups, gid)
	if ns.postings != nil {
		ns.postings.remove(g.def.Labels, gid)
		if len(ns.groups) < indexedGroups/2 {
			ns.postings = nil
		}
	}
	for name := range portNames(g.def) {
		setList(x.byPort, name, removeID(x.byPort[name], gid))
	}
}

// portNames returns the names of a group's ports, one per name and protocol.
func portNames(g *intent.Group) func(func(api.PortName) bool) {
	return func(yield func(api.PortName) bool) {
		for i, p := range g.NamedPorts {
			if i > 0 && g.NamedPorts[i-1].PortName == p.PortName {
				continue
			}
			if !yield(p.PortName) {
				return
			}
		}
	}
}

// maxListed is how many texts a message lists.
const maxListed = 10

func quoted(texts []string) string {
	var b strings.Builder
	for i, t := range texts[:min(len(texts), maxListed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(model.Quoted(t))
	}
	if n := len(texts) - maxListed; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}
