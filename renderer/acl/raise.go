package acl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Bound is an interface of a pod, and what a Commit left at it.
type Bound struct {
	Name  string
	Index uint32
	Tag   string
	UID   string    // of the pod that sluice-cni made it for; empty: not known
	Pod   api.PodID // whose rules it has; the zero value when it is blocked
	// State is BoundEnforced when it has the rules of its pod. In every other one it is blocked, and
	// Reason says why.
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

// Ask has the next Commit read all interfaces, and calls OnChange, so that there is one. Bound takes
// what it returns. Any goroutine may call it.
func (r *Renderer) Ask() (ticket uint64) {
	ticket = r.asks.Add(1)
	r.InterfacesChanged()
	return ticket
}

// Bound returns what a Commit left at an interface that has read the interfaces since Ask; false
// when there was none, or it is not known as a pod's. Any goroutine may call it; it waits for no
// Commit.
func (r *Renderer) Bound(name string, ticket uint64) (Bound, bool) {
	s := r.published.Load()
	b, ok := s.bound[name]
	return b, ok && s.answered >= ticket
}

// Endpoints returns what the last Commit left at the interfaces of pods, by index. Any goroutine may
// call it; it waits for no Commit.
func (r *Renderer) Endpoints() []Bound {
	return slices.SortedFunc(maps.Values(r.published.Load().bound), func(a, b Bound) int { return cmp.Compare(a.Index, b.Index) })
}

// endpoints returns what the interfaces of pods have. before is what they had.
func (w *wanted) endpoints(before map[string]Bound, now time.Time) map[string]Bound {
	out := make(map[string]Bound, len(w.who.pods)+len(w.who.held))
	for _, n := range w.m.Interfaces {
		b := Bound{Name: n.Name, Index: n.Index, Tag: n.Tag, State: BoundPending, Since: now}
		if n.Made != nil {
			b.UID = n.Made.UID
		}
		pod, isPods := w.who.pods[n.Index]
		t := w.who.tables[n.Index]
		switch {
		case w.who.held[n.Index]:
			b.State, b.Reason = w.who.heldState(n)
		case isPods && (!w.isBound(n) || t != nil && w.tooBig[t.Digest]):
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

// heldState says why an interface is blocked.
func (o *ownership) heldState(n *mirror.Interface) (state, reason string) {
	switch why := o.otherLife[n.Index]; {
	case why != "":
		return BoundPending, why
	case len(o.owned[n.Index]) > 1:
		return BoundConflicting, fmt.Sprintf("pods %s and %s claim it", o.owned[n.Index][0], o.owned[n.Index][1])
	case o.isPods(n):
		return BoundPending, cmp.Or(o.lifeRefused(n), "its pod is not known yet")
	}
	return BoundOrphaned, "its tag or its key is gone"
}

// lifeRefused returns why an interface is not that of its pod, of which policy knows no address.
func (o *ownership) lifeRefused(n *mirror.Interface) string {
	name, tagged := strings.CutPrefix(n.Tag, vpp.PodTagPrefix)
	pod, err := api.ParsePodID(name)
	if !tagged || err != nil || n.Made == nil || o.options.Refuses == nil {
		return ""
	}
	return o.options.Refuses(pod, *n.Made)
}

// isBound reports whether an interface has what it must have.
func (w *wanted) isBound(n *mirror.Interface) bool { return w.m.With(n, w.ours(n)).Equal(n.Bound) }

// raise sets up the interfaces that a CNI plugin made and left down, once they have what they must
// have: rules, and the list of sources that the plugin gives them last.
func (w *wanted) raise(ctx context.Context) error {
	for _, n := range w.m.Interfaces {
		_, isPods := w.who.pods[n.Index]
		if !n.Down || !vpp.MadeByCNI(n.Name) || n.Made == nil || !isPods && !w.who.held[n.Index] || !w.isBound(n) {
			continue
		}
		if err := w.r.link.Raise(ctx, n); err != nil {
			return err
		}
		n.Down = false
	}
	return nil
}
