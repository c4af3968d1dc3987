package endpoints

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// sorted holds all claims by interface and by pod, with the best last.
type sorted struct {
	link map[uint32][]Claim
	pod  map[api.PodID][]Claim
}

// order sorts the claims if necessary.
func (r *Registry) order() *sorted {
	if r.sorted != nil {
		return r.sorted
	}
	r.sorted = &sorted{map[uint32][]Claim{}, map[api.PodID][]Claim{}}
	for _, c := range r.Claims() {
		r.sorted.link[c.Link.Index] = append(r.sorted.link[c.Link.Index], c)
		r.sorted.pod[c.Pod] = append(r.sorted.pod[c.Pod], c)
	}
	return r.sorted
}

// settle brings the states of all interfaces up to date, and records which changed.
func (r *Registry) settle() {
	if !r.stale {
		return
	}
	r.stale = false
	for index, n := range r.nodes {
		e := r.derive(index, n)
		e.Since = n.state.Since
		if old := n.state; old.State != e.State || old.Pod != e.Pod || old.UID != e.UID {
			e.Since = r.now()
		}
		if n.state != e {
			n.state = e
			r.dirty[index] = true
		}
	}
}

// derive returns the state of an interface. It depends on the current input only, not on its order,
// except for withdrawn claims and pods that were known before.
func (r *Registry) derive(index uint32, n *node) Endpoint {
	c, why := r.bound(index)
	e := Endpoint{Link: n.link, Pod: c.Pod, UID: c.UID, Source: c.Source, State: StateOrphaned, Reason: why}
	switch {
	case why == reasonUnclaimed && n.last.Source != SourceNone:
		e.Pod, e.UID, e.Source = n.last.Pod, n.last.UID, n.last.Source
		e.Reason = "its pod gave it up"
	case why == reasonUnclaimed:
		e.State = StateUnknown
	case strings.HasPrefix(why, reasonConflict):
		e.State = StateConflicting
	case strings.HasPrefix(why, reasonLife) && !n.known:
		e.State = StatePending
	case why != "":
	case r.pods[c.Pod] && n.enforced == c.Pod:
		e.State = StateEnforced
	case r.pods[c.Pod] && n.differs != "":
		e.State, e.Reason = StatePending, n.differs
	case r.pods[c.Pod]:
		e.State, e.Reason = StatePending, "its policy is not enforced yet"
	case n.known:
		e.Reason = "its pod is gone"
	default:
		e.State, e.Reason = StatePending, "policy does not know its pod yet"
	}
	return e
}

// Reasons why an interface is bound to no pod.
const (
	reasonUnclaimed = "no source names its pod"
	reasonSandbox   = "its pod has another sandbox now"
	reasonConflict  = "it is claimed in a conflict of "
	reasonLife      = "policy knows another pod of this name, "
)

// bound returns the best claim of an interface, and why policy of its pod must not be enforced
// there; "" if it must.
func (r *Registry) bound(index uint32) (best Claim, why string) {
	all := r.order()
	here := all.link[index]
	if len(here) == 0 {
		return Claim{}, reasonUnclaimed
	}
	best = here[len(here)-1]
	for _, c := range all.pod[best.Pod] { // this interface, and others of its pod
		if others := rivals(all.link[c.Link.Index]); len(others) > 1 {
			return best, fmt.Sprintf("%s%s, which claim interface %s", reasonConflict, strings.Join(others, " and "), c.Link.Name)
		}
	}
	if best.Sandbox != "" && sandbox(all.pod[best.Pod]) != best.Sandbox {
		return best, reasonSandbox
	}
	if uid, claimed := r.uids[best.Pod], uidOf(here); uid != "" && claimed != "" && uid != claimed {
		return best, fmt.Sprintf("%suid %s", reasonLife, uid)
	}
	return best, ""
}

// sandbox returns the sandbox in the best claim of a pod.
func sandbox(claims []Claim) string {
	for _, c := range slices.Backward(claims) {
		if c.Sandbox != "" {
			return c.Sandbox
		}
	}
	return ""
}

// uidOf returns the UID in the claims of one interface, which are for one pod.
func uidOf(claims []Claim) string {
	for _, c := range claims {
		if c.UID != "" {
			return c.UID
		}
	}
	return ""
}

// rivals returns the names of the pods in the claims of one interface. Pods with different UIDs are
// different pods.
func rivals(claims []Claim) (out []string) {
	uids := map[api.PodID]string{}
	for _, c := range claims {
		uid, known := uids[c.Pod]
		switch {
		case !known:
			out = append(out, c.Pod.String())
			uids[c.Pod] = c.UID
		case uid == "":
			uids[c.Pod] = c.UID
		case c.UID != "" && c.UID != uid:
			out = append(out, fmt.Sprintf("%s (uid %s)", c.Pod, c.UID))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
