package renderertest

import (
	"runtime"

	"github.com/sluice-net/sluice/api"
)

// Ends are the verdicts at the two ends of a flow: of the ingress list of the sending pod, and of
// the egress list of the receiving pod. Both must permit the flow.
type Ends struct{ Src, Dst api.Action }

// Possible returns, by action, whether a flow may have that verdict when each of its ends is
// decided as in one of the states. After a failed Apply these are the last enforced state or any
// later one. The ends may be in different states, because a renderer changes pod after pod.
func Possible(states ...Ends) (verdicts [2]bool) {
	var src, dst [2]bool // by action
	for _, s := range states {
		src[s.Src], dst[s.Dst] = true, true
	}
	verdicts[api.Permit] = src[api.Permit] && dst[api.Permit]
	verdicts[api.Deny] = src[api.Deny] || dst[api.Deny]
	return verdicts
}

// Changes returns the number of changes of a test in which many fail; n is the usual number.
func Changes(n int) int { return Extent(n/2, n, 10_000) }

// LiveHeap returns the number of reachable bytes. Leaks of failed Applies add up over many changes.
func LiveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // the second run collects what finalizers release
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
