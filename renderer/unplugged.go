package renderer

import (
	"time"

	"github.com/sluice-net/sluice/api"
)

// unpluggedGrace is how long a known pod may be without its interface. A runtime removes the
// interface of a terminating pod before the API server reports that the pod has ended.
const unpluggedGrace = time.Minute

// Unplugged tracks terminating pods: pods whose interface disappeared while policy was in force
// there. The zero value is ready to use. It is used by one goroutine at a time.
type Unplugged struct {
	plugged map[api.PodID]bool
	since   map[api.PodID]time.Time
}

// Plugged sets the pods that have policy in force at an interface. known reports whether a pod
// still exists.
func (u *Unplugged) Plugged(pods map[api.PodID]bool, known func(api.PodID) bool) {
	u.plugged = pods
	for pod := range u.since {
		if pods[pod] || !known(pod) {
			delete(u.since, pod)
		}
	}
}

// Ends reports whether a pod lost its interface at most a minute ago.
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

// Forget drops all pods, when their interfaces disappeared for another reason.
func (u *Unplugged) Forget() { *u = Unplugged{} }
