package renderer

import (
	"time"

	"github.com/sluice-net/sluice/api"
)

// unpluggedGrace is for how long it is normal that a pod is known whose interface went: a runtime
// takes the interface of a pod that ends away before the API server says that the pod has ended.
const unpluggedGrace = time.Minute

// Unplugged knows the pods that end: those whose interface went while policy was in force there.
// Its zero value is ready. One goroutine uses it at a time.
type Unplugged struct {
	plugged map[api.PodID]bool
	since   map[api.PodID]time.Time
}

// Plugged says of which pods policy is in force at an interface, all of them, and which pods there
// are.
func (u *Unplugged) Plugged(pods map[api.PodID]bool, known func(api.PodID) bool) {
	u.plugged = pods
	for pod := range u.since {
		if pods[pod] || !known(pod) {
			delete(u.since, pod)
		}
	}
}

// Ends reports whether a pod without an interface had one that went, a minute ago at most.
func (u *Unplugged) Ends(pod api.PodID, now time.Time) bool {
	since, gone := u.since[pod]
	if !gone && u.plugged[pod] {
		if u.since == nil {
			u.since = map[api.PodID]time.Time{}
		}
		since, gone = now, true
		u.since[pod] = now
	}
	return gone && now.Sub(since) < unpluggedGrace
}

// Forget forgets all pods: their interfaces went for another reason.
func (u *Unplugged) Forget() { *u = Unplugged{} }
