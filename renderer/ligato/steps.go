package ligato

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// assign gives every group an ACL name, such that as little as possible is written and no interface
// sees rules of others: the name of an ACL that already holds the content; else of an ACL that can
// change into it; else a new one.
func (w *wanted) assign() map[string]*group {
	names := make(map[string]*group)
	var rest []*group
	sorted := w.sortedGroups()
	for _, g := range sorted {
		if name := w.best(g, names, func(p published) bool { return p.content.digest == g.content.digest }); name != "" {
			names[name] = g
		} else {
			rest = append(rest, g)
		}
	}
	var created []*group
	for _, g := range rest {
		name := w.best(g, names, func(p published) bool { return w.canBecome(p, g) })
		if name == "" {
			created = append(created, g)
			continue
		}
		names[name] = g
	}
	next := 0
	for _, g := range created {
		for next++; w.isTaken(names, next); next++ {
		}
		names[tablePrefix+strconv.Itoa(next)] = g
	}
	return names
}

// sortedGroups returns the groups in a deterministic order.
func (w *wanted) sortedGroups() []*group {
	return slices.SortedFunc(maps.Values(w.groups), func(a, b *group) int {
		return slices.Compare(a.content.digest[:], b.content.digest[:])
	})
}

// isTaken reports whether the n-th name is in use before or after. A freed name is reused only
// later, so that it never names two tables at once.
func (w *wanted) isTaken(names map[string]*group, n int) bool {
	name := tablePrefix + strconv.Itoa(n)
	_, held := w.r.held[name]
	return held || names[name] != nil || slices.Contains(w.r.strange, name)
}

// best returns the held table that passes and shares the most interfaces with a group.
func (w *wanted) best(g *group, used map[string]*group, passes func(published) bool) string {
	best, most := "", -1
	for _, name := range slices.Sorted(maps.Keys(w.r.held)) {
		p := w.r.held[name]
		if !strings.HasPrefix(name, tablePrefix) || used[name] != nil || !passes(p) {
			continue
		}
		if n := common(p, g); n > most {
			best, most = name, n
		}
	}
	return best
}

func common(p published, g *group) (n int) {
	for _, i := range p.egress {
		if g.egress[i] {
			n++
		}
	}
	return n
}

// canBecome reports whether the content of an ACL can change into that of a group in place.
// Interfaces that move to another ACL leave before the change, and interfaces from another ACL join
// after it, so an ACL cannot have both.
func (w *wanted) canBecome(p published, g *group) bool {
	if common(p, g) == 0 || sameToTheAgent(p.content, g.content) {
		return false
	}
	leave := slices.ContainsFunc(p.egress, func(i string) bool { return !g.egress[i] && w.isWanted(i) })
	return !leave || !w.comesFromAnother(p, g)
}

// isWanted reports whether an interface must have some table.
func (w *wanted) isWanted(name string) bool {
	for _, g := range w.groups {
		if g.egress[name] {
			return true
		}
	}
	return false
}

// comesFromAnother reports whether an interface of a group comes from another ACL than p.
func (w *wanted) comesFromAnother(p published, g *group) bool {
	for _, other := range w.r.held {
		for _, i := range other.egress {
			if g.egress[i] && !slices.Contains(p.egress, i) {
				return true
			}
		}
	}
	return false
}

// steps returns the steps from the held to the wanted content.
//
// First, every interface that gets a table starts to create sessions. Then interfaces join their
// tables and contents change, except where an interface leaves for another table. A moving
// interface has both tables then. The old one decides, or the new one if the agent restarts
// meanwhile. Then it leaves its old table, whose content changes only now. At the end, interfaces
// without a table stop creating sessions.
func (w *wanted) steps() []step {
	held := w.r.held
	targets := w.targets()
	first, join, leave, last := newStep(), newStep(), newStep(), newStep()
	for name, t := range targets {
		was, ok := held[name]
		switch {
		case ok && was.equal(t):
		case name == reflectName:
			if all := union(was.ingress, t.ingress); !ok || !slices.Equal(all, was.ingress) || was.content.digest != t.content.digest {
				first.puts[name] = published{content: t.content, ingress: all}
				was.ingress = all
			}
			if !slices.Equal(was.ingress, t.ingress) {
				last.puts[name] = t
			}
		default:
			w.move(name, was, t, targets, &join, &leave)
		}
	}
	for name := range held {
		if _, ok := targets[name]; !ok {
			if name == reflectName {
				last.deletes = append(last.deletes, name)
			} else {
				leave.deletes = append(leave.deletes, name)
			}
		}
	}
	for _, name := range w.r.strange {
		if _, ok := targets[name]; !ok {
			leave.deletes = append(leave.deletes, name)
		}
	}
	return []step{first, join, leave, last}
}

func newStep() step { return step{puts: make(map[string]published)} }

// move changes a table to its target, in one put if possible.
func (w *wanted) move(name string, was, t published, targets map[string]published, join, leave *step) {
	var movers []string // interfaces that move to another table
	for _, i := range was.egress {
		if !slices.Contains(t.egress, i) && hasElsewhere(targets, name, i) {
			movers = append(movers, i)
		}
	}
	joined := published{content: t.content, egress: union(t.egress, movers)}
	switch {
	case len(movers) == 0:
		join.puts[name] = t
	case was.content.digest != t.content.digest || joined.equal(was):
		leave.puts[name] = t
	default:
		join.puts[name] = joined
		leave.puts[name] = t
	}
}

// hasElsewhere reports whether an interface must have another table than the named one.
func hasElsewhere(targets map[string]published, name, iface string) bool {
	for other, t := range targets {
		if other != name && slices.Contains(t.egress, iface) {
			return true
		}
	}
	return false
}

// targets returns the wanted tables by name.
func (w *wanted) targets() map[string]published {
	out := make(map[string]published)
	var all []string
	for name, g := range w.assign() {
		p := published{content: g.content, egress: slices.Sorted(maps.Keys(g.egress))}
		out[name] = p
		all = append(all, p.egress...)
	}
	if w.isGlobal && len(w.global.egress) > 0 {
		out[globalName] = w.global
		all = append(all, w.global.egress...)
	}
	if len(all) > 0 {
		out[reflectName] = published{content: reflectContent(), ingress: union(all, nil)}
	}
	return out
}

// union returns all names once, sorted.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
