package mirror

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// What it means where an ACL of somebody else stands. Ours decide about every packet of an
// interface that has some.
const (
	placeFront  = "it stands in front of ours and decides first"
	placeBehind = "it stands behind ours, which decide everything, and is not asked"
)

// ForeignACL is an ACL of somebody else on an interface.
type ForeignACL struct {
	renderer.Foreign
	Index uint32
}

// IsSame reports whether it is known already, in the same place.
func (f ForeignACL) IsSame(o renderer.Foreign) bool {
	return o.Object == f.Object && o.At == f.At && o.Direction == f.Direction && o.First == f.First
}

// ForeignAt returns the ACLs of others in those lists of an interface that have ours. What enters
// there is of one direction of pods.
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
