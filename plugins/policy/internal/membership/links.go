package membership

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
)

// links records which groups are in which sets.
type links struct {
	groups []linkedGroup // by GroupID
}

type linkedGroup struct {
	def  *intent.Group
	sets []*Set // of which the group is a member
}

// add adds a group that is in no set.
func (l *links) add(id intent.GroupID, g *intent.Group) {
	for int(id) >= len(l.groups) {
		l.groups = append(l.groups, linkedGroup{})
	}
	l.groups[id] = linkedGroup{def: g}
}

// remove removes a group, and returns the sets that it was in.
func (l *links) remove(id intent.GroupID) []*Set {
	sets := l.groups[id].sets
	for _, set := range sets {
		set.groups--
	}
	l.groups[id] = linkedGroup{}
	return sets
}

// enter links a group to a set.
func (l *links) enter(set *Set, id intent.GroupID) {
	l.groups[id].sets = append(l.groups[id].sets, set)
	set.groups++
}

// exit removes the link of a group to a set, if there is one.
func (l *links) exit(set *Set, id intent.GroupID) bool {
	g := &l.groups[id]
	i := len(g.sets) - 1
	for i >= 0 && g.sets[i] != set { // from the newest, see DropIdle
		i--
	}
	if i < 0 {
		return false
	}
	last := len(g.sets) - 1
	g.sets[i] = g.sets[last]
	g.sets[last] = nil
	g.sets = g.sets[:last]
	set.groups--
	return true
}

// contains reports whether a group is in a set.
func (l *links) contains(set *Set, id intent.GroupID) bool {
	return slices.Contains(l.groups[id].sets, set)
}
