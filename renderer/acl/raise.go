package acl

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
)

// Bound is an interface of a pod, and what a Commit left at it.
type Bound struct {
	Name  string
	Index uint32
	Tag   string
	UID   string    // of the pod that sluice-cni made it for; empty: not known
	Pod   api.PodID // whose rules it has; the zero value when it is blocked
	// State is BoundEnforced when it has the rules of its pod. In every other one it is blocked,
	// and Reason says why.
	State  string
	Reason string
	Since  time.Time // of the state
}

// What becomes of the packets of an interface.
const (
	BoundEnforced    = "enforced"    // what the rules of its pod permit passes
	BoundPending     = "pending"     // blocked until the policy of its pod is known and in force
	BoundOrphaned    = "orphaned"    // blocked: it was a pod's, and nobody says any more whose it is
	BoundConflicting = "conflicting" // blocked: several pods claim it
)

// Ask has the next Commit read all interfaces, and calls OnChange, so that there is one. Bound
// takes what it returns. Any goroutine may call it.
func (r *reader) Ask() (ticket uint64) {
	ticket = r.asks.Add(1)
	r.InterfacesChanged()
	return ticket
}

// Bound returns what a Commit left at an interface that has read the interfaces since Ask; false
// when there was none, or it is not known as a pod's. Any goroutine may call it; it waits for no
// Commit.
func (r *reader) Bound(name string, ticket uint64) (Bound, bool) {
	s := r.published.Load()
	b, ok := s.bound[name]
	return b, ok && s.answered >= ticket
}

// Endpoints returns what the last Commit left at the interfaces of pods, by index. Any goroutine
// may call it; it waits for no Commit.
func (r *reader) Endpoints() []Bound {
	return slices.SortedFunc(maps.Values(r.published.Load().bound), func(a, b Bound) int { return cmp.Compare(a.Index, b.Index) })
}

// InterfacesChanged has the next Commit look for the interfaces of all pods again, and
// calls OnChange, so that there is one. Any goroutine may call it.
func (r *reader) InterfacesChanged() {
	r.replugged.Store(true)
	r.link.Prompt()
}

// endpoints returns what the interfaces of pods have. before is what they had.
func (w *wanted) endpoints(before map[string]Bound, now time.Time) map[string]Bound {
	out := make(map[string]Bound, len(w.ownership.pods)+len(w.ownership.blocked))
	for _, n := range w.m.Interfaces {
		b := Bound{Name: n.Name, Index: n.Index, Tag: n.Tag, State: BoundPending, Since: now}
		if n.Made != nil {
			b.UID = n.Made.UID
		}
		pod, isPods := w.ownership.pods[n.Index]
		t := w.ownership.tables[n.Index]
		switch {
		case w.ownership.blocked[n.Index]:
			b.State, b.Reason = w.ownership.blockedState(n)
		case isPods && (!w.bindings.isBound(n) || t != nil && w.refusals.tooBig[t.Digest]):
			b.Reason = "the rules of its pod are not in force"
		case isPods:
			b.State, b.Pod = BoundEnforced, pod
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
