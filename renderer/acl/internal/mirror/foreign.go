package mirror

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// The effect of a foreign ACL by its position. Our ACLs decide all packets of an interface that has
// some.
const (
	placeFront  = "it comes before Sluice's ACLs and decides first"
	placeBehind = "it comes after Sluice's ACLs, which decide every packet, and has no effect"
)

// ForeignACL is an ACL of another owner on an interface.
type ForeignACL struct {
	renderer.Foreign
	Index uint32
}

// IsSame reports whether o is the same ACL at the same position.
func (f ForeignACL) IsSame(o renderer.Foreign) bool {
	return o.Object == f.Object && o.At == f.At && o.Direction == f.Direction && o.First == f.First
}

// ForeignAt returns the foreign ACLs in those lists of an interface that also have ours. enters is
// the direction, from the pod's point of view, of packets that enter by the interface.
func (m *Mirror) ForeignAt(n *Interface, pods []api.PodID, enters api.Direction) (out []ForeignACL) {
	for _, x := range []struct {
		direction    api.Direction
		list, behind []uint32
	}{{enters, n.Bound.In, n.Behind.In}, {enters.Opposite(), n.Bound.Out, n.Behind.Out}} {
		if len(m.Own(x.list)) == 0 {
			continue
		}
		for _, index := range x.list {
			if m.ACLs[index] != nil {
				continue
			}
			f := renderer.Foreign{Object: fmt.Sprintf("acl %d", index), At: "interface " + n.Name, Pods: pods, Direction: x.direction, First: true, Place: placeFront}
			if slices.Contains(x.behind, index) {
				f.First, f.Place = false, placeBehind
			}
			out = append(out, ForeignACL{f, index})
		}
	}
	return out
}
