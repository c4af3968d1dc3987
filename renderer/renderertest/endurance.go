package renderertest

import (
	"runtime"

	"github.com/sluice-net/sluice/api"
)

// Ends are the verdicts at the two ends of a flow: of the ingress list of the pod that
// sends it, and of the egress list of the pod that receives it. Both must permit it.
type Ends struct{ Src, Dst api.Action }

// Possible says, by action, which verdicts a flow may have when each of its ends is
// decided as in one of some states: after a Commit that failed, in the last that was
// enforced or in one that was told since. The ends may be in different states, because a
// renderer changes pod after pod.
func Possible(states ...Ends) (verdicts [2]bool) {
	var src, dst [2]bool // by action
	for _, s := range states {
		src[s.Src], dst[s.Dst] = true, true
	}
	verdicts[api.Permit] = src[api.Permit] && dst[api.Permit]
	verdicts[api.Deny] = src[api.Deny] || dst[api.Deny]
	return verdicts
}

// Changes is how many changes a test makes of which many fail, where n are usual.
func Changes(n int) int { return Extent(n/2, n, 10_000) }

// LiveHeap returns how many bytes are reachable. What a Commit that fails leaves behind
// adds up over many.
func LiveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // what finalizers let go of is gone with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
