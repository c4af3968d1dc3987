package node

import (
	"fmt"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/ligato"
)

// Table is an installed table of a node.
type Table struct {
	acl.DumpTable
	Objects []string // what holds it, as the stack calls it
}

// RendererName returns the name of the renderer of the node's dataplane.
func (n *Node) RendererName() string {
	if n.Ligato != nil {
		return n.Ligato.Name()
	}
	if n.onlyXDP() {
		return n.XDP.Name()
	}
	return n.ACL.Name()
}

// Dump returns what the renderer knows of the dataplane, in the form of renderer/acl. Of
// what is published for a vpp-agent, only its pods, rules and errors are known.
func (n *Node) Dump() acl.Dump {
	if n.Ligato != nil {
		return dumpOf(n.Ligato.Dump())
	}
	if n.onlyXDP() {
		return dumpOfXDP(n.XDP.Dump())
	}
	return n.ACL.Dump()
}

// DumpHits is Dump with the hits of rules, where something counts them.
func (n *Node) DumpHits() acl.Dump {
	if n.Ligato != nil {
		return n.Dump()
	}
	if n.onlyXDP() {
		return dumpOfXDP(n.XDP.DumpHits())
	}
	return n.ACL.DumpHits()
}

// Hits returns what rules of policies decided, nil where nobody counts: a vpp-agent does not.
func (n *Node) Hits() map[renderer.Decided]uint64 {
	switch {
	case n.onlyXDP():
		return n.XDP.Hits()
	case n.ACL != nil:
		return n.ACL.Hits()
	}
	return nil
}

// Tables returns the tables with what holds them.
func (n *Node) Tables() []Table {
	var out []Table
	if n.Ligato != nil {
		for _, t := range n.Ligato.Dump().Tables {
			v := Table{DumpTable: tableOf(t)}
			if t.ACL != "" {
				v.Objects = []string{"acl " + t.ACL}
			}
			out = append(out, v)
		}
		return out
	}
	if n.onlyXDP() {
		for _, t := range n.Dump().Tables {
			out = append(out, Table{DumpTable: t})
		}
		return out
	}
	for _, t := range n.ACL.Dump().Tables {
		v := Table{DumpTable: t}
		for _, index := range t.ACLs {
			v.Objects = append(v.Objects, fmt.Sprintf("acl %d", index))
		}
		out = append(out, v)
	}
	return out
}

func dumpOf(d ligato.Dump) acl.Dump {
	out := acl.Dump{Error: d.Error, Pending: d.Pending, Connected: d.Error == ""}
	for _, t := range d.Tables {
		out.Tables = append(out.Tables, tableOf(t))
	}
	return out
}

func tableOf(t ligato.DumpTable) acl.DumpTable {
	return acl.DumpTable{Name: t.Name, Pods: t.Pods, Rules: t.Rules, Origins: t.Origins, Entries: t.Entries}
}

// InterfacesChanged has the renderer look for the interfaces of pods again.
func (n *Node) InterfacesChanged() {
	if n.Ligato != nil || n.onlyXDP() {
		n.Plugin.Prompt() // it looks in every commit
		return
	}
	n.ACL.InterfacesChanged()
}
