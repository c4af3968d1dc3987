package renderer

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Changes are changes of what a dataplane is to enforce, as a value. They lead from one consistent
// cut of the state to a later one: every set that a list names is in the same value, or the renderer
// holds it already. A value is not changed once it was passed to a renderer; its slices and
// configurations are shared with others. The zero value changes nothing.
type Changes struct {
	// Resync says that the value is the whole state: whatever it does not name has no members, or
	// has ended.
	Resync bool
	Sets   map[api.SetID]SetChange
	Pods   map[api.PodID]*PodConfig // nil: the pod has ended, or is not attached to this vswitch any more
}

// SetChange is how the members of one address set change. A prefix that is added was no member, one
// that is removed was, and none is both. Members of one set do not overlap. In a resync all members
// are added.
type SetChange struct{ Added, Removed []netip.Prefix }

// UpdateSet adds a change of the members of a set to the value. What was added before and is removed
// now is in neither list.
func (c *Changes) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if c.Sets == nil {
		c.Sets = map[api.SetID]SetChange{}
	}
	now := SetChange{added, removed}
	if before, ok := c.Sets[id]; ok {
		d := newDelta(before, c.Resync)
		d.then(now, c.Resync)
		now = d.change()
	}
	if c.Sets[id] = now; len(now.Added)+len(now.Removed) == 0 {
		delete(c.Sets, id)
	}
}

// Render sets the configuration of a pod that is attached to this vswitch.
func (c *Changes) Render(pod api.PodID, cfg PodConfig) { c.setPod(pod, &cfg) }

// Remove ends a pod. Renderers ignore the end of a pod that they do not know.
func (c *Changes) Remove(pod api.PodID) { c.setPod(pod, nil) }

func (c *Changes) setPod(pod api.PodID, cfg *PodConfig) {
	if c.Pods == nil {
		c.Pods = map[api.PodID]*PodConfig{}
	}
	c.Pods[pod] = cfg
}

// Empty reports whether the value changes nothing.
func (c Changes) Empty() bool { return !c.Resync && len(c.Sets)+len(c.Pods) == 0 }

// HasPods reports whether the value changes pods. A resync always does.
func (c Changes) HasPods() bool { return c.Resync || len(c.Pods) > 0 }

// AllSets iterates over the sets in the order of their IDs.
func (c Changes) AllSets() iter.Seq2[api.SetID, SetChange] { return inOrder(c.Sets, cmp.Compare) }

// AllPods iterates over the pods in the order of their names.
func (c Changes) AllPods() iter.Seq2[api.PodID, *PodConfig] {
	return inOrder(c.Pods, api.PodID.Compare)
}

func inOrder[K comparable, V any](m map[K]V, compare func(a, b K) int) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(m), compare) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// String describes the value, a line for each set and pod.
func (c Changes) String() string {
	var b strings.Builder
	if c.Resync {
		b.WriteString("resync\n")
	}
	for id, s := range c.AllSets() {
		fmt.Fprintf(&b, "set %s: add %v, remove %v\n", id, s.Added, s.Removed)
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			fmt.Fprintf(&b, "pod %s: ended\n", pod)
			continue
		}
		fmt.Fprintf(&b, "pod %s: %v, ingress %s, egress %s\n", pod, cfg.IPs, lengthOf(cfg.Ingress), lengthOf(cfg.Egress))
	}
	return b.String()
}

func lengthOf(l *RuleList) string {
	if l == nil {
		return "unrestricted"
	}
	return fmt.Sprintf("%d rules", l.Len())
}
