package acl

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Ask makes the next Apply read all interfaces, and calls OnChange to cause one. It returns a
// ticket for Bound. Any goroutine may call it.
func (r *reader) Ask() (ticket uint64) {
	ticket = r.asks.Add(1)
	r.InterfacesChanged()
	return ticket
}

// Bound returns the state of an interface after an Apply that has read the interfaces since Ask. It
// returns false when there was no such Apply, or when the interface is not known as a pod's. Any
// goroutine may call it; it does not wait for an Apply.
func (r *reader) Bound(name string, ticket uint64) (vpp.Bound, bool) {
	s := r.published.Load()
	b, ok := s.bound[name]
	return b, ok && s.answered >= ticket
}

// Endpoints returns the state of the pod interfaces after the last Apply, by index. Any goroutine
// may call it; it does not wait for an Apply.
func (r *reader) Endpoints() []vpp.Bound {
	return slices.SortedFunc(maps.Values(r.published.Load().bound), func(a, b vpp.Bound) int { return cmp.Compare(a.Index, b.Index) })
}

// InterfacesChanged makes the next Apply look up the interfaces of all pods again, and calls
// OnChange to cause one. Any goroutine may call it.
func (r *reader) InterfacesChanged() {
	r.interfacesChanged.Store(true)
	r.link.Prompt()
}

// endpoints returns the states of the pod interfaces. before are the previous states.
func (w *wanted) endpoints(before map[string]vpp.Bound, now time.Time) map[string]vpp.Bound {
	out := make(map[string]vpp.Bound, len(w.ownership.pods)+len(w.ownership.blocked))
	for _, n := range w.m.Interfaces {
		b := vpp.Bound{Name: n.Name, Index: n.Index, Tag: n.Tag, State: vpp.BoundPending, Since: now}
		if n.Made != nil {
			b.UID = n.Made.UID
		}
		pod, isPods := w.ownership.pods[n.Index]
		t := w.ownership.tables[n.Index]
		switch {
		case w.ownership.blocked[n.Index]:
			b.State, b.Reason = w.ownership.blockedState(n)
		case isPods && (!w.bindings.isBound(n) || t != nil && w.refusals.refused[t.Digest]):
			b.Reason = "the rules of its pod are not in force"
		case isPods:
			b.State, b.Pod = vpp.BoundEnforced, pod
		default:
			continue
		}
		if was := before[n.Name]; was.Index == b.Index && was.State == b.State && was.Pod == b.Pod && was.UID == b.UID {
			b.Since = was.Since
		}
		out[n.Name] = b
	}
	return out
}

// noteBound records the pods that have rules in force at an interface.
func (i *interfaces) noteBound(w *wanted) {
	pods := make(map[api.PodID]bool, len(w.ownership.pods))
	for _, pod := range w.ownership.pods {
		pods[pod] = true
	}
	i.ending.Plugged(pods, func(pod api.PodID) bool { _, known := w.layout.Pods[pod]; return known })
}

// noteBlocked records the blocked interfaces and logs new ones.
func (i *interfaces) noteBlocked(w *wanted) {
	var names []string
	for _, n := range w.m.Interfaces {
		if w.ownership.blocked[n.Index] {
			names = append(names, n.Name)
			if !slices.Contains(i.blocked, n.Name) {
				w.r.options.Log.Info("blocking an interface until its pod is known", "interface", n.Name, "tag", n.Tag)
			}
		}
	}
	i.blocked = names
}
